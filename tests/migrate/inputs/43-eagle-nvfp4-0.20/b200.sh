#!/bin/bash
IMAGE=nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3
MODEL=/models/Llama-3.3-70B-Instruct
run() { docker run --rm --gpus all -v /models:/models $IMAGE "$@"; }
run python3 /app/examples/quantization/quantize.py --model_dir $MODEL --qformat nvfp4 --kv_cache_dtype fp8 --tp_size 2 --output_dir /models/ckpt
run trtllm-build --checkpoint_dir /models/ckpt --output_dir /models/engine \
    --gemm_plugin disable --norm_quant_fusion enable --speculative_decoding_mode eagle \
    --max_batch_size 64 --max_num_tokens 4096 --max_seq_len 16384 --multiple_profiles enable
