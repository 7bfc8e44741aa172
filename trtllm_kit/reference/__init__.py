"""A small numpy forward pass of Llama-shaped models: reads arrays, makes logits, text and amax statistics. Pure."""
