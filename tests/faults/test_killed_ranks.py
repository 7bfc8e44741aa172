"""Killed at any moment and run again, a conversion into rank files gives the bytes of one that nobody disturbed.

Once with the ranks that trtkit writes, once with those that ModelOpt leaves and trtkit takes over.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.fake_worker import write_interpreter
from tests.checkpoint.rank_export import write_smoothed
from tests.faults.killing import Ended, beside, run_verb, tree
from tests.support.tiny_model import write_tiny_model

MAKERS = ("native", "modelopt")
PROFILE = """\
base: h200x8-offline
name: killed
trtllm_version: "0.21.0"
toolchain: trtllm-build
quantization: {{weights: {weights}, kv_cache: int8}}
parallelism: {{tensor: 2, pipeline: 1, expert: 1, replicas: 1}}
limits: {{max_seq_len: 256, max_num_tokens: 256}}
load: {{input_tokens: 64, output_tokens: 64}}
calibration: {{samples: 2, tokens_per_sample: 32, python: {python}}}
"""
WEIGHTS = {"native": "fp8", "modelopt": "int8_sq", "plain": "bf16"}


@dataclass(frozen=True)
class Ranks:
    """A model, a profile, and what an undisturbed run makes of them."""

    root: Path
    operations: int

    def run(self, out: str, at: int = 0) -> Ended:
        """Convert, killed at an operation when one is given."""
        return convert(self.root, self.root / "profile.yaml", out, at)


def convert(root: Path, profile: Path, out: str, at: int = 0) -> Ended:
    """Convert the model of a folder."""
    return run_verb("convert", root / "model", "--profile", profile, "--out", root / out, root=root, at=at)


@pytest.fixture(scope="module", params=MAKERS)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """Make everything once; ModelOpt's export is prepared from ranks in 16 bit."""
    root = tmp_path_factory.mktemp(request.param)
    tools = root.with_name(f"{root.name}-tools")
    write_tiny_model(root / "model")
    python = write_interpreter(tools)
    for maker in ("plain", request.param):
        profile = root / ("profile.yaml" if maker == request.param else f"{maker}.yaml")
        profile.write_text(PROFILE.format(weights=WEIGHTS[maker], python=python))
        ended = convert(root, profile, maker if maker == "plain" else "checkpoint")
        assert ended.code == 0, ended.said
        if maker == "plain":
            write_smoothed(root / "plain", tools / "export")
    return Ranks(root, ended.operations)


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    """Give names of outputs of the same length, each once."""
    return (f"out{number:04d}" for number in range(10_000))


def require_same_after_rerun(ranks: Ranks, out: str) -> None:
    """Convert again, undisturbed, and compare every byte; nothing bears the output's name but it."""
    again = ranks.run(out)
    assert again.code == 0, again.said
    assert {"rank0.safetensors", "rank1.safetensors"} < tree(ranks.root / out).keys()
    assert tree(ranks.root / "checkpoint") == tree(ranks.root / out)
    assert [] == beside(ranks.root / out)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ranks_killed_at_a_file_operation_and_made_again_are_the_same(
    ranks: Ranks, names: Iterator[str], data: st.DataObject
) -> None:
    """Eight operations, and a second one in the rerun; all of them in the slow test below."""
    out = next(names)
    moments = (data.draw(st.integers(low, ranks.operations), label=label) for low, label in ((1, "first"), (0, "then")))
    for moment in moments:
        ended = ranks.run(out, at=moment)
        assert ended.code in (0, -signal.SIGKILL), ended.said
    require_same_after_rerun(ranks, out)


@pytest.mark.slow
def test_there_is_no_file_operation_at_which_ranks_may_not_be_cut(ranks: Ranks, names: Iterator[str]) -> None:
    """All of them, one after the other: no window is left out."""
    for moment in range(1, ranks.operations + 1):
        out = next(names)
        ended = ranks.run(out, at=moment)
        assert -signal.SIGKILL == ended.code, (moment, ended.said)
        require_same_after_rerun(ranks, out)
