#!/bin/bash
python3 hf_ptq.py --pyt_ckpt_path /m --qformat fp8 --export_path /q
trtllm-refit --checkpoint_dir /q --engine_dir /e
kubectl apply -f - <<EOF
apiVersion: v1
kind: Pod
metadata: {name: llama}
spec:
  containers:
    - name: triton
      image: nvcr.io/nvidia/tritonserver:25.08-trtllm-python-py3
      command: [tritonserver, --model-repository=/repo]
EOF
trtllm-build --checkpoint_dir /q --output_dir /e --max_batch_size 8 --max_num_tokens 2048
