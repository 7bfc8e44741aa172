#!/bin/bash
source ../env.sh
python3 $EXAMPLES/llama/convert_checkpoint.py --model_dir $MODEL --tp_size $TP --output_dir $CKPT
