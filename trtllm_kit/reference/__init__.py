"""The numpy forward pass: reads a model spec and weights; makes logits. Pure, float32, clear before fast.

It needs no torch and no GPU, and it is what calibration, the quality report, tests and the rehearsal runtime run on.
"""
