#!/bin/bash
build_one() {
  local size=$1
  trtllm-build --checkpoint_dir /c/$size --output_dir /e/$size --max_batch_size $2
}
function never_called() {
  trtllm-build --checkpoint_dir $1 --max_beam_width 4
}
build_one 8b 64
