#!/bin/bash
# Llama 3.3 70B in FP8 on four GPUs, from quantisation to the answer
set -ex
export MODEL=/models/Llama-3.3-70B-Instruct
export ENGINE=/engines/llama-3.3-70b/fp8
TP=4; PP=1; GPUS=$((TP*PP))
python3 -m pip install --upgrade "tensorrt_llm==1.2.0" --extra-index-url https://example.org/simple

python3 examples/quantization/quantize.py \
    --model_dir "${MODEL}" \
    --dtype bfloat16 --qformat fp8 --kv_cache_dtype fp8 \
    --tp_size ${TP} --pp_size ${PP} \
    --output_dir "${ENGINE%/*}/ckpt"

mpirun -n 1 --allow-run-as-root trtllm-build --checkpoint_dir "${ENGINE%/*}/ckpt" --output_dir "${ENGINE}" \
    --workers ${GPUS} --max_batch_size ${BS:=256} --max_num_tokens 16384 \
    --use_fp8_context_fmha enable --reduce_fusion=enable --user_buffer=enable

cp -r /app/all_models/inflight_batcher_llm /repo
for model in preprocessing postprocessing; do
  python3 /app/tools/fill_template.py -i /repo/$model/config.pbtxt "tokenizer_dir:${MODEL},triton_max_batch_size:${BS},${model}_instance_count:1"
done
trtllm-serve "$ENGINE" --tokenizer $MODEL --backend tensorrt --host 0.0.0.0 --port 8000 &
curl -s localhost:8000/v1/models | python3 -m json.tool
