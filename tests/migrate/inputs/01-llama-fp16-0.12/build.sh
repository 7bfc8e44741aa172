#!/bin/bash
# Llama 3 8B on one GPU, TensorRT-LLM 0.12
git clone -b v0.12.0 https://github.com/triton-inference-server/tensorrtllm_backend.git
cd tensorrtllm_backend/tensorrt_llm/examples/llama
python3 convert_checkpoint.py --model_dir /models/Meta-Llama-3-8B-Instruct \
    --output_dir /tmp/llama/ckpt \
    --dtype float16
trtllm-build --checkpoint_dir /tmp/llama/ckpt \
    --output_dir /tmp/llama/engine \
    --gemm_plugin float16 \
    --max_input_len 2048 --max_seq_len 4096 \
    --max_batch_size 64
