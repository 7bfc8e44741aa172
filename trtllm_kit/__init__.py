"""trtllm_kit: from a Hugging Face checkpoint and a deploy profile to a checked, running TensorRT-LLM server.

The folder list is the data flow: spec -> plan -> checkpoint -> build -> repository -> serve -> health.
"""

__version__ = "0.1.0"
