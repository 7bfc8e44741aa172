EXAMPLES=/app/examples
MODEL=/models/llama
TP=2
CKPT=/ckpt
