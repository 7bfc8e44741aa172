#!/bin/bash
trtllm-build --checkpoint_dir /c \
  --output_dir /e
  --max_batch_size 64 \
  --max_seq_len 4096
