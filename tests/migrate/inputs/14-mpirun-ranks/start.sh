#!/bin/sh
exec mpirun --allow-run-as-root \
  -n 1 -x UCX_TLS=tcp tritonserver --model-repository=/repo --http-port=8000 --grpc-port=8001 --metrics-port=8002 \
      --disable-auto-complete-config --backend-config=python,shm-region-prefix-name=prefix0_ : \
  -n 1 tritonserver --model-repository=/repo --model-control-mode=explicit --load-model=tensorrt_llm \
      --backend-config=python,shm-region-prefix-name=prefix1_ :
