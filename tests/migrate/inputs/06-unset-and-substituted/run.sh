#!/bin/bash
source /opt/settings/site.env
NAME=$(basename /models/llama-3-8b)
GPUS=$(nvidia-smi -L | wc -l)
trtllm-build --checkpoint_dir $CKPT/$NAME \
    --output_dir /engines/$NAME \
    --max_batch_size ${MAX_BATCH} \
    --workers $GPUS $EXTRA_ARGS \
    --max_seq_len `cat len.txt` --max_beam_width 1
