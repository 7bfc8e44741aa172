"""Several runs at once on one output, as real processes: one works, the others wait or refuse, none corrupts."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.killing import beside, tree
from tests.support.cli import trtkit, trtkit_path
from tests.support.tiny_model import write_tiny_model

PROFILE = """\
base: cpu-rehearsal-smollm2
name: together
quantization: {weights: %s, kv_cache: bf16}
calibration: {samples: 2, tokens_per_sample: 48}
limits: {max_seq_len: 512, max_num_tokens: 512}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A model, two profiles, and what each of them gives."""
    write_tiny_model(tmp_path / "model", shards=3)
    for weights in ("bf16", "fp8"):
        (tmp_path / f"{weights}.yaml").write_text(PROFILE % weights)
        assert 0 == trtkit(*arguments(tmp_path, weights, f"alone-{weights}")).code
    return tmp_path


def arguments(root: Path, weights: str, out: str) -> tuple[str | Path, ...]:
    """Return a command line."""
    return ("convert", root / "model", "--profile", root / f"{weights}.yaml", "--out", root / out)


def begin(root: Path, weights: str, out: str) -> subprocess.Popen[str]:
    """Start a run."""
    command = [trtkit_path(), *map(str, arguments(root, weights, out))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends(runs: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait for every run; return what each did, and check that none failed in another way than it may."""
    found = []
    for run in runs:
        out, err = run.communicate(timeout=120)
        refused = run.returncode == 3 and err.startswith("error[KIT-ARTIFACT-002]")
        assert run.returncode == 0 or refused, err
        found.append("refused" if refused else "up to date" if "is up to date" in out else "made")
    return found


def test_runs_of_one_plan_make_it_once(root: Path) -> None:
    """Four at once: one makes the checkpoint, the others find it made, and it is that of a run alone."""
    did = Counter(ends([begin(root, "fp8", "out") for _ in range(4)]))
    assert 1 == did["made"]
    assert 3 == did["up to date"] + did["refused"]
    assert tree(root / "alone-fp8") == tree(root / "out")
    assert [] == beside(root / "out")


def test_runs_of_two_plans_leave_the_whole_of_one(root: Path) -> None:
    """What the last of them made stands there, and nothing of the other."""
    did = ends([begin(root, weights, "out") for weights in ("fp8", "bf16", "fp8", "bf16")])
    assert "made" in did
    assert tree(root / "out") in (tree(root / "alone-fp8"), tree(root / "alone-bf16"))
    assert [] == beside(root / "out")


def test_who_waits_goes_on_where_a_killed_run_was_cut(root: Path) -> None:
    """The lock dies with its holder; the waiter takes it at once and gives the same bytes."""
    killed = begin(root, "fp8", "out")
    while not (root / ".out.partial").exists() and killed.poll() is None:
        time.sleep(0.002)
    waiting = begin(root, "fp8", "out")
    killed.kill()
    killed.communicate()
    assert ["made"] == ends([waiting]) or killed.returncode == 0
    assert tree(root / "alone-fp8") == tree(root / "out")
    assert [] == beside(root / "out")
