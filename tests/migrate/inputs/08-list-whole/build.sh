#!/bin/bash
ARGS=(
  --checkpoint_dir /c --output_dir /e
  --max_batch_size 16     # small
  --lora_plugin auto --lora_target_modules attn_q attn_k attn_v
)
ARGS+=(--max_lora_rank 16)
trtllm-build "${ARGS[@]}"
