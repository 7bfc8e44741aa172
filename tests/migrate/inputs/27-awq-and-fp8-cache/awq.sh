#!/bin/bash
MODEL_DIR='/models/Qwen2.5-72B Instruct'
python3 quantize.py --model_dir="$MODEL_DIR" --dtype auto --qformat w4a8_awq --awq_block_size 64 \
  --kv_cache_dtype fp8 --calib_size 32 --calib_max_seq_length=1024 --calib_dataset cnn_dailymail --tp_size 4 --output_dir "./c"
trtllm-build --checkpoint_dir ./c --output_dir ./e --max_batch_size 32 --max_seq_len 32768 --max_num_tokens 8192 --use_fp8_context_fmha enable
