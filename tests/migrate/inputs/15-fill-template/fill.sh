#!/bin/bash
ENGINE_DIR=/engines/llama/fp8
TOKENIZER_DIR=/models/llama
MODEL_FOLDER=/triton_model_repo
TRITON_MAX_BATCH_SIZE=128
INSTANCE_COUNT=1
FILL_TEMPLATE_SCRIPT=/app/tools/fill_template.py
python3 ${FILL_TEMPLATE_SCRIPT} -i ${MODEL_FOLDER}/ensemble/config.pbtxt triton_max_batch_size:${TRITON_MAX_BATCH_SIZE}
python3 ${FILL_TEMPLATE_SCRIPT} -i ${MODEL_FOLDER}/preprocessing/config.pbtxt tokenizer_dir:${TOKENIZER_DIR},triton_max_batch_size:${TRITON_MAX_BATCH_SIZE},preprocessing_instance_count:${INSTANCE_COUNT}
python3 ${FILL_TEMPLATE_SCRIPT} -i ${MODEL_FOLDER}/tensorrt_llm/config.pbtxt "triton_backend:tensorrtllm,triton_max_batch_size:${TRITON_MAX_BATCH_SIZE},decoupled_mode:True,engine_dir:${ENGINE_DIR},max_queue_delay_microseconds:0,batching_strategy:inflight_fused_batching,kv_cache_free_gpu_mem_fraction:0.85,enable_kv_cache_reuse:True,enable_chunked_context:True,max_beam_width:1,gpu_device_ids:${GPUS}"
