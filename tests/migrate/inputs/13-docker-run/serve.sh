#!/bin/bash
export NCCL_DEBUG=WARN
docker run --rm -it --net host --shm-size=2g \
  --ulimit memlock=-1 --ulimit stack=67108864 --gpus '"device=0,1"' \
  -v $PWD/repo:/repo -v /models:/models:ro \
  -e NCCL_P2P_DISABLE=1 -e HF_TOKEN \
  nvcr.io/nvidia/tritonserver:24.10-trtllm-python-py3 \
  bash -c 'python3 /app/scripts/launch_triton_server.py --world_size 2 \
    --model_repo /repo --http_port 8100 --grpc_port 8101 --metrics_port 8102'
