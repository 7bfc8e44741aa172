#!/bin/bash
ssh -p 2222 gpu01 'cd /src && trtllm-build --checkpoint_dir ckpt --output_dir engine --max_batch_size 12'
kubectl exec -it builder -- bash -lc "python3 quantize.py --model_dir /m --qformat int8_sq --output_dir /c"
docker exec -d triton tritonserver --model-repository=/repo --metrics-port=9002
