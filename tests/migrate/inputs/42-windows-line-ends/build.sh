#!/bin/bash
TP=2
trtllm-build --checkpoint_dir /c \
  --output_dir /e --workers $TP
