"""What is true: reads config.json, hardware data and deploy profiles; makes model, hardware and profile objects."""
