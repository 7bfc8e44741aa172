#!/bin/bash
trtllm-build --checkpoint_dir /c \
  --output_dir "/engines/llama 8b \
  --max_batch_size 64 \
  --max_seq_len 4096
python3 quantize.py --model_dir /m --qformat int4_awq --awq_block_size 128
