"""What each TensorRT-LLM release accepts, as data with version ranges, and small questions asked of it."""
