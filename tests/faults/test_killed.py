"""Killed at any moment and run again, a verb gives the bytes of a run that nobody disturbed, and leaves no trace."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.killing import Ended, beside, run_verb, tree
from tests.support.cli import trtkit, trtkit_path
from tests.support.tiny_model import write_tiny_model

VERBS = ("convert", "build", "deploy")
PROFILE = """\
base: cpu-rehearsal-smollm2
name: killed
toolchain: mock
runtime: simulated
quantization: {weights: fp8, kv_cache: fp8}
calibration: {samples: 3, tokens_per_sample: 48, text: %s}
limits: {max_seq_len: 512, max_num_tokens: 512}
"""
INPUT = {"convert": "model", "build": "checkpoint", "deploy": "engine"}
OUTPUT = {"convert": "checkpoint", "build": "engine", "deploy": "repository"}


@dataclass(frozen=True)
class Road:
    """A folder with the input of every verb, and what an undisturbed run makes of it."""

    root: Path
    operations: dict[str, int]

    def run(self, verb: str, out: str, at: int = 0) -> Ended:
        """Run a verb on its input, killed at an operation when one is given."""
        return run_verb(*self.arguments(verb, out), root=self.root, at=at)

    def arguments(self, verb: str, out: str) -> tuple[str | Path, ...]:
        """Return the command line of a verb."""
        return (verb, self.root / INPUT[verb], "--profile", self.root / "profile.yaml", "--out", self.root / out)


def make_road(root: Path) -> Road:
    """Go down the road once, undisturbed, counting what each verb does to the disk."""
    write_tiny_model(root / "model", shards=3)
    (root / "text.txt").write_text("the end of the tin man in the land of the north wind " * 8)
    (root / "profile.yaml").write_text(PROFILE % (root / "text.txt"))
    road = Road(root, {})
    for verb in VERBS:
        ended = road.run(verb, OUTPUT[verb])
        assert ended.code == 0, ended.said
        road.operations[verb] = ended.operations
    return road


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """One road for all tests of this file; each of them makes an output of its own on it."""
    return make_road(tmp_path_factory.mktemp("road"))


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    """Give names of outputs of the same length, each once."""
    return (f"out{number:04d}" for number in range(10_000))


def require_same_after_rerun(road: Road, verb: str, out: str) -> None:
    """Run a verb again, undisturbed, and compare every byte; nothing bears the output's name but it."""
    again = road.run(verb, out)
    assert again.code == 0, again.said
    assert tree(road.root / OUTPUT[verb]) == tree(road.root / out)
    assert [] == beside(road.root / out)


@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_verb_killed_at_a_file_operation_and_run_again_gives_the_same_bytes(
    road: Road, names: Iterator[str], verb: str, data: st.DataObject
) -> None:
    """Eight operations of each verb, all in the slow test below, and a second one in the rerun: all is made whole."""
    out, most = next(names), road.operations[verb]
    for moment in (data.draw(st.integers(1, most), label="first"), data.draw(st.integers(0, most), label="second")):
        ended = road.run(verb, out, at=moment)
        assert ended.code in (0, -signal.SIGKILL), ended.said
    require_same_after_rerun(road, verb, out)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_there_is_no_file_operation_at_which_a_verb_may_not_be_killed(
    road: Road, names: Iterator[str], verb: str
) -> None:
    """All of them, one after the other: no window is left out."""
    for moment in range(1, road.operations[verb] + 1):
        out = next(names)
        ended = road.run(verb, out, at=moment)
        assert -signal.SIGKILL == ended.code, (moment, ended.said)
        require_same_after_rerun(road, verb, out)


@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_verb_killed_while_it_replaces_an_artifact_leaves_the_old_or_the_new_one(
    road: Road, names: Iterator[str], verb: str, data: st.DataObject
) -> None:
    """What a reader finds in place is one of the two, whole, or nothing for the moment of the swap."""
    out = next(names)
    older = road.root / "older.yaml"
    older.write_text((road.root / "profile.yaml").read_text().replace(*OLDER[verb]))
    arguments = road.arguments(verb, out)
    ended = run_verb(*arguments[:3], older, *arguments[4:], root=road.root)
    assert ended.code == 0, ended.said
    old, new = tree(road.root / out), tree(road.root / OUTPUT[verb])
    assert old != new
    moment = data.draw(st.integers(1, road.operations[verb] + len(old)), label="moment")
    road.run(verb, out, at=moment)
    if (road.root / out).exists():
        assert tree(road.root / out) in (old, new)
    require_same_after_rerun(road, verb, out)


OLDER = {
    "convert": ("samples: 3", "samples: 2"),
    "build": ("name: killed", "name: older"),
    "deploy": ("name: killed", "name: older"),
}
"""What an older profile said instead."""


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.1))
def test_the_installed_command_killed_at_any_time_and_run_again_gives_the_same_bytes(
    road: Road, names: Iterator[str], verb: str, share: float
) -> None:
    """By the clock, from outside, wherever the process is: interpreter, system call, child process."""
    whole, cut = next(names), next(names)
    begun = time.monotonic()
    assert 0 == trtkit(*road.arguments(verb, whole)).code
    seconds = time.monotonic() - begun
    command = [trtkit_path(), *map(str, road.arguments(verb, cut))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(share * seconds)
    process.kill()
    process.wait()
    assert 0 == trtkit(*road.arguments(verb, cut)).code
    assert tree(road.root / whole) == tree(road.root / cut)
    assert [] == beside(road.root / cut)
