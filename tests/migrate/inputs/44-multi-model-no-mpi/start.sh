#!/bin/bash
export TRTLLM_ORCHESTRATOR=1
export CUDA_VISIBLE_DEVICES=0,1,2,3
nohup python3 /app/scripts/launch_triton_server.py --multi-model --model_repo=/repo \
  --tensorrt_llm_model_name="llama,mistral" --no-mpi --log --log-file /var/log/triton.txt -f --http_port=${PORT:-8080} > /dev/null 2>&1 &
