#!/bin/bash
python examples/medusa/convert_checkpoint.py --model_dir ./vicuna-7b-v1.3 --medusa_model_dir ./medusa-vicuna-7b-v1.3 \
    --output_dir ./ckpt --dtype float16 --num_medusa_heads 4
trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --gemm_plugin float16 \
    --speculative_decoding_mode medusa --max_batch_size 4
