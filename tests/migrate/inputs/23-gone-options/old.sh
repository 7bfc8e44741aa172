#!/bin/bash
trtllm-build --checkpoint_dir /c --output_dir /e --max_output_len 512 --strongly_typed \
  --use_custom_all_reduce disable --paged_kv_cache enable --enable_xqa enable --lookup_plugin float16 --tp_size 2
