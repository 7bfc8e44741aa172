#!/bin/bash
pip install tensorrt-llm==0.18.2
docker run --gpus all nvcr.io/nvidia/tritonserver:24.12-trtllm-python-py3 tritonserver --model-repository=/r
