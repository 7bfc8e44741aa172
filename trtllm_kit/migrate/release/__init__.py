"""LLM-API documents and commands from one release to another; what a project holds that a release breaks."""
