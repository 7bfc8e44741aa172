"""Producing tensors: which rounding a quantised tensor gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.formats import to_float32
from trtllm_kit.checkpoint.job import prepare
from trtllm_kit.checkpoint.produce import Producer
from trtllm_kit.dtypes import decode_bf16, encode_bf16, encode_e4m3
from trtllm_kit.progress import Silent


def test_fused_experts_are_rounded_once_and_linear_weights_twice(tmp_path: Path) -> None:
    """ModelOpt divides a linear's weight in BF16 before e4m3, and Llama 4's fused experts in float32."""
    source = write_tiny_model(tmp_path, "llama4")
    job = prepare(source, plan_for(source, "fp8", "fp8"), 1 << 30)
    producer = Producer(job.weights, job.plan.model, {}, Silent())
    ways_differ = 0
    for step in (one for one in job.steps if one.action == "quantise"):
        scale = producer._weight_scale(step)
        quotients = to_float32(np.concatenate(list(job.weights.tiles(step.source))), "BF16") / scale
        once, twice = encode_e4m3(quotients), encode_e4m3(decode_bf16(encode_bf16(quotients)))
        found = np.concatenate([tile.ravel() for tile in producer.tiles(step)])
        assert np.array_equal(twice if len(step.shape) == 2 else once, found), step.name
        ways_differ += not np.array_equal(once, twice)
    assert ways_differ > 1
