"""What Triton reads: reads an engine folder and a plan, makes a model repository with a manifest."""
