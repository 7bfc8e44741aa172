python3 convert_checkpoint.py --model_dir /m --output_dir /c --smoothquant 0.5 --per_token --per_channel --int8_kv_cache --tp_size 1
trtllm-build --checkpoint_dir /c --output_dir /e --max_batch_size 16 --tokens_per_block 64 --use_paged_context_fmha disable
