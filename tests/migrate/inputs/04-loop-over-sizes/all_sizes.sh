#!/bin/bash
for TP in 1 2 4; do
  python3 convert_checkpoint.py --model_dir /m/qwen2-7b --tp_size $TP --output_dir /ckpt/tp$TP
done
for i in {0..2}; do
  echo "rank $i"
done
for n in $(seq 2 3); do
  tritonserver --model-repository=/repos/$n --http-port $((8000 + n * 10)) &
done
