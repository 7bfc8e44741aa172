#!/bin/bash
pip install tensorrt_llm==0.16.0
python3 convert_checkpoint.py --model_dir /m --output_dir /c --tp-size 2
trtllm-build --checkpoint_dir /c --output_dir /e \
  --max_batchsize 64 --gemm_plugin auto \
  --max_seq_len four --max_num_tokens
trtllm-biuld --checkpoint_dir /c --max_beam_width 4
python3 launch_triton_server.py --world_sise 2 --model_repo=/r
