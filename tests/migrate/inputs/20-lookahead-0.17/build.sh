#!/bin/bash
git clone -b v0.17.0 https://github.com/NVIDIA/TensorRT-LLM
trtllm-build --checkpoint_dir /c --output_dir /e --speculative_decoding_mode lookahead_decoding --max_draft_len 83 --max_batch_size 4 --max_seq_len 4096
python3 tools/fill_template.py -i /repo/tensorrt_llm/config.pbtxt decoding_mode:lookahead,lookahead_window_size:7,lookahead_ngram_size:7,lookahead_verification_set_size:7,engine_dir:/e
