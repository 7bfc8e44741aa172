#!/bin/bash
pip install --extra-index-url https://pypi.example.org tensorrt_llm==1.0.0
cat > /tmp/extra.yml <<EOF
enable_chunked_prefill: true
cuda_graph_config: {}
EOF
trtllm-serve serve /engines/llama --backend tensorrt --tokenizer /models/llama \
  --host 0.0.0.0 --port 8000 --max_batch_size 64 --max_num_tokens 8192 \
  --kv_cache_free_gpu_memory_fraction 0.8 --extra_llm_api_options /tmp/extra.yml
