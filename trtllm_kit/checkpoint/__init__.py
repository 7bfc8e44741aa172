"""Weights on disk: reads a Hugging Face folder; makes a checkpoint in the number formats a plan asks for.

``convert`` is the way in. ``header`` and ``reader`` read safetensors, ``check`` refuses what does not match the
model, ``layout`` decides every output tensor of the unified layout and ``rank_layout`` of that of engines,
``calibrate`` measures static scales, ``formats`` makes the bytes, ``writer`` streams them, ``load`` and ``evaluate``
read a folder back and say what it lost.
"""
