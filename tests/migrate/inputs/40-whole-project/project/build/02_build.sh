#!/bin/bash
. ../env.sh
trtllm-build --checkpoint_dir $CKPT --output_dir /engine --max_batch_size 48
