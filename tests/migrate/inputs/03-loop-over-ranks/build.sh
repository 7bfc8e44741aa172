#!/bin/bash
TP_SIZE=2
for FMT in fp8; do
  python3 /app/examples/quantization/quantize.py --model_dir ./Llama-3.1-8B-Instruct \
      --qformat $FMT --kv_cache_dtype $FMT --tp_size $TP_SIZE \
      --calib_size 512 --output_dir ./ckpt-$FMT
done
for (( rank=0; rank<TP_SIZE; rank++ )); do
  CUDA_VISIBLE_DEVICES=$rank trtllm-build --checkpoint_dir ./ckpt-fp8 \
      --output_dir ./engine --max_batch_size 32 --max_seq_len 8192 &
done
wait
