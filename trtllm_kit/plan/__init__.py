"""What we decide: reads a model spec, hardware and a deploy profile; makes the plan and its findings. Pure."""
