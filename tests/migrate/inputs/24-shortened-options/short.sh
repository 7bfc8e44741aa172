#!/bin/bash
trtllm-build --checkpoint /c --output_d /e --max_batch 8 --max_multimodal_len 576 --max_decoder_seq_len 1024 --max_s 4096
python3 -m tensorrt_llm.commands.build --checkpoint_dir /c --max_prompt_embedding_table_size=0
