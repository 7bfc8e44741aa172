#!/usr/bin/env bash
set -euo pipefail
MODEL=${1:-meta-llama/Llama-3.1-70B-Instruct}
TP=${TP:-4}
PP=1
OUT="/engines/llama-70b-tp${TP}"
MAX_BATCH=${MAX_BATCH_SIZE:-128}

python examples/llama/convert_checkpoint.py \
  --model_dir "$MODEL" --dtype bfloat16 \
  --tp_size "${TP}" --pp_size $PP --workers $((TP * PP)) \
  --output_dir "${OUT}/ckpt"

trtllm-build --checkpoint_dir="${OUT}/ckpt" --output_dir="${OUT}/engine" \
  --max_batch_size=$MAX_BATCH \
  --max_num_tokens 16384 --max_seq_len 8192 \
  --use_paged_context_fmha enable --workers $TP
