python3 convert_checkpoint.py --model_dir /m --output_dir /c --use_weight_only --weight_only_precision int4
trtllm-build --checkpoint_dir /c --output_dir /e --weight_only_precision int4 --max_batch_size 8 --max_num_tokens 2048
