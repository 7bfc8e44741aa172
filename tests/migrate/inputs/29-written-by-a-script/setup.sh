#!/bin/bash
BATCH=24
cat > build.sh <<EOF
#!/bin/bash
trtllm-build --checkpoint_dir /c --output_dir /e --max_batch_size $BATCH
EOF
cat <<'EOF' > serve.sh
#!/bin/bash
tritonserver --model-repository=/repo --http-port $PORT
EOF
echo "trtllm-build --max_beam_width 2" >> build.sh
bash -s <<'EOF'
trtllm-build --checkpoint_dir /x --max_seq_len $BATCH
EOF
