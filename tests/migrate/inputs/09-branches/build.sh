#!/bin/bash
PRECISION=${1:-fp8}
if [ "$PRECISION" = "fp8" ]; then
  python3 quantize.py --model_dir /m --qformat fp8 --output_dir /c
  PLUGIN=fp8
else
  python3 convert_checkpoint.py --model_dir /m --use_weight_only --output_dir /c
  PLUGIN=auto
fi
if [ -z "$SEQ" ]; then
  SEQ=4096
fi
case $2 in
  small) BATCH=8 ;;
  *) BATCH=64 ;;
esac
trtllm-build --checkpoint_dir /c --gemm_plugin $PLUGIN --max_seq_len $SEQ --max_batch_size $BATCH
