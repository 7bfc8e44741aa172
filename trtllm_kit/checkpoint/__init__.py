"""Weights on disk: reads a Hugging Face folder, makes a converted checkpoint with a manifest."""
