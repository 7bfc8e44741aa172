"""The part of ``tensorrt_llm.llmapi`` that loading needs."""
