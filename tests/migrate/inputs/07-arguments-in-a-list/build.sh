#!/bin/bash
ARGS=(
  --checkpoint_dir /c
  --max_batch_size 16     # small
  --gpt_attention_plugin bfloat16
)
ARGS+=(--reduce_fusion enable)
if [ "$QUICK" = "1" ]; then
  ARGS+=(--fast_build)
fi
COMMON="--output_dir /e --max_seq_len 2048"
trtllm-build $COMMON --log_level warning
trtllm-build "${ARGS[@]}"
