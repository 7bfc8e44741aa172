"""What ``trtkit plan`` shows of a plan."""

from __future__ import annotations

from typing import Any

from tests.support.specs import hardware, llama_70b, profile
from trtllm_kit.cli.plan import plan_text
from trtllm_kit.plan.settle import settle


def shown(changes: dict[str, Any], capability: int = 90) -> str:
    """Lay out the plan of 70B on eight GPUs."""
    return plan_text(settle(llama_70b(), profile(changes), hardware(8, capability=capability)), (), verbose=False)


def test_replicas_are_added_up_behind_the_sequences_of_one() -> None:
    """A reader sees that the count is that of one copy, and what all of them hold."""
    one, two = (shown({"parallelism.tensor": 4, **more}) for more in ({}, {"parallelism.replicas": 2}))

    assert "241 sequences fit, 1 asked\n" in one
    assert "241 sequences fit, 1 asked, in each of 2 replicas: 482 in all on 8 GPUs\n" in two
    assert "parallelism.replicas" in two
    assert "parallelism.replicas" not in one


def test_a_decided_quantity_has_its_unit() -> None:
    """Seconds and bytes are not bare numbers in the table of decisions."""
    changes = {"toolchain": "trtllm-build", "trtllm_version": "0.21.0", "build.timeout": "90 min"}
    text = shown(changes | {"kv_cache.host_cache_bytes": 3 << 30})
    rows = {line.split("  ")[0].strip(): line for line in text.splitlines()}

    assert " 90 min 0 s " in rows["build.timeout"]
    assert " 3.00 GiB " in rows["kv_cache.host_cache_bytes"]


def test_nvfp4_has_a_line_in_the_memory_table() -> None:
    """Weights of four bits are told from others."""
    changes = {"parallelism.tensor": 4, "quantization.weights": "nvfp4"}

    assert "weights in nvfp4" in shown(changes, capability=100)
    assert "weights in nvfp4" not in shown(changes | {"quantization.weights": "fp8"}, capability=100)
