"""The steps of one profile in each release that builds engines, compared with the recorded ones.

After a wanted change: ``pytest tests/plan/test_golden_steps.py --update-golden``, and read the diff.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.build.step import Run
from trtllm_kit.build.toolchain import steps
from trtllm_kit.plan.settle import settle
from trtllm_kit.upstream import known_releases, release

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "steps"
BUILT = tuple(name for name in known_releases() if "trtllm-build" in release(name).toolchains)
CHANGES = {
    "toolchain": "trtllm-build",
    "quantization.weights": "fp8",
    "quantization.kv_cache": "fp8",
    "parallelism.tensor": 2,
    "limits.max_batch_size": 64,
    "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NCCL_IGNORE_CPU_AFFINITY": "1"},
    "speculation.kind": "ngram",
    "speculation.draft_tokens": 4,
}


@pytest.mark.parametrize("version", BUILT)
def test_the_steps_are_as_recorded(version: str, request: pytest.FixtureRequest) -> None:
    """No option of any release comes, goes or changes unseen."""
    made = settle(llama_8b(), profile(CHANGES | {"trtllm_version": version}), hardware(8))
    runs = [step.model_dump(mode="json") for step in steps(made) if isinstance(step, Run)]
    text = json.dumps(runs, indent=1) + "\n"
    path = GOLDEN / f"{version}.json"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text("utf-8") == text


def test_no_recorded_steps_are_left_over() -> None:
    """Each file is one release's."""
    assert set(BUILT) == {path.stem for path in GOLDEN.iterdir()}
