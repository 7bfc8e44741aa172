#!/bin/bash
python ../llama/convert_checkpoint.py --model_dir ./Mixtral-8x7B-v0.1 \
  --output_dir ./c --dtype bfloat16 --pp_size 1 --tp_size 4 --moe_tp_size 2 --moe_ep_size 2
trtllm-build --checkpoint_dir ./c --output_dir ./e --moe_plugin auto --nccl_plugin=auto --max_batch_size 128
