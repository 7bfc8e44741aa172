"""The engine store under fire: builds and removals that are killed at any moment, and several at once."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.killing import Ended, beside, run_verb, tree
from tests.faults.test_killed import PROFILE
from tests.support.cli import trtkit, trtkit_path
from tests.support.tiny_model import write_tiny_model


@dataclass(frozen=True)
class Road:
    """A checkpoint, the engine of a build without a store, and how often builds and removals touch the disk."""

    root: Path
    operations: dict[str, int]

    def build(self, out: str, store: str, at: int = 0) -> Ended:
        """Build with a store, killed at an operation when one is given."""
        return run_verb(*self.arguments(out, store), root=self.root, at=at)

    def prune(self, store: str, at: int = 0) -> Ended:
        """Remove what nothing uses."""
        return run_verb("engines", "prune", self.root / store, "--unused", root=self.root, at=at)

    def arguments(self, out: str, store: str) -> tuple[str | Path, ...]:
        """Return the command line of a build with a store."""
        profile, root = self.root / "profile.yaml", self.root
        return ("build", root / "checkpoint", "--profile", profile, "--out", root / out, "--store", root / store)


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Go down the road once, undisturbed."""
    root = tmp_path_factory.mktemp("road")
    write_tiny_model(root / "model")
    (root / "text.txt").write_text("the end of the tin man in the land of the north wind " * 8)
    (root / "profile.yaml").write_text(PROFILE % (root / "text.txt"))
    for verb, source, out in (("convert", "model", "checkpoint"), ("build", "checkpoint", "engine")):
        ran = trtkit(verb, root / source, "--profile", root / "profile.yaml", "--out", root / out)
        assert 0 == ran.code, ran.err
    road = Road(root, {})
    made = road.build("count", "storecount")
    shutil.rmtree(root / "count")
    removed = road.prune("storecount")
    assert (0, 0) == (made.code, removed.code), made.said + removed.said
    road.operations.update(build=made.operations, prune=removed.operations)
    return road


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    """Give each example a number of its own."""
    return iter(range(1000, 9000))


def require_whole(road: Road, out: str, store: str) -> None:
    """Build again, undisturbed: the bytes are those of a build without a store, and nothing else is left."""
    again = road.build(out, store)
    assert 0 == again.code, again.said
    assert tree(road.root / "engine") == tree(road.root / out)
    assert [] == beside(road.root / out)
    (entry,) = (path for path in (road.root / store).iterdir() if len(path.name) == 64)
    assert tree(road.root / "engine").items() - tree(entry).items() <= {("checkpoint", b"../checkpoint")}
    assert {entry.name, "uses", "trtkit-store.json"} == {path.name for path in (road.root / store).iterdir()}


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_build_with_a_store_killed_twice_and_run_again_is_whole(
    road: Road, numbers: Iterator[int], data: st.DataObject
) -> None:
    """Five operations, all in the slow test below: output and store are those of a run that nobody disturbed."""
    number = next(numbers)
    for moment in (data.draw(st.integers(1, road.operations["build"])), data.draw(st.integers(0, 30))):
        ended = road.build(f"out{number}", f"store{number}", at=moment)
        assert ended.code in (0, -signal.SIGKILL), ended.said
    require_whole(road, f"out{number}", f"store{number}")


@pytest.mark.slow
def test_there_is_no_operation_at_which_a_build_with_a_store_may_not_be_killed(
    road: Road, numbers: Iterator[int]
) -> None:
    """All of them, one after the other."""
    for moment in range(1, road.operations["build"] + 1):
        number = next(numbers)
        assert -signal.SIGKILL == road.build(f"out{number}", f"store{number}", at=moment).code
        require_whole(road, f"out{number}", f"store{number}")


@pytest.mark.slow
def test_a_removal_killed_at_any_operation_leaves_an_engine_whole_or_gone(road: Road, numbers: Iterator[int]) -> None:
    """All operations, one after the other: what is in place verifies, the next prune leaves nothing."""
    for moment in range(1, road.operations["prune"] + 1):
        number = next(numbers)
        store = road.root / f"store{number}"
        assert 0 == road.build(f"out{number}", store.name).code
        shutil.rmtree(road.root / f"out{number}")
        assert -signal.SIGKILL == road.prune(store.name, at=moment).code, moment
        verified = run_verb("engines", "verify", store, root=road.root)
        assert 0 == verified.code, (moment, verified.said)
        assert 0 == road.prune(store.name).code
        assert {"uses", "trtkit-store.json"} == {path.name for path in store.iterdir()}, moment


def test_builds_of_one_key_at_once_build_once(road: Road) -> None:
    """Four outputs, one store: one runs the builder, the others take its engine, and all have the same bytes."""
    outs = [f"together{number}" for number in range(4)]
    runs = [
        subprocess.Popen(
            [trtkit_path(), *map(str, road.arguments(out, "shared")), "--lock-wait", "2min", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for out in outs
    ]  # fmt: skip
    said = [run.communicate(timeout=120) for run in runs]
    assert [0] * 4 == [run.returncode for run in runs], said
    assert {True: 3, False: 1} == Counter("taken_from" in out for out, _ in said)
    assert 1 == len(list(road.root.glob("together*.build.log")))
    assert all(tree(road.root / "engine") == tree(road.root / out) for out in outs)


def test_prune_beside_a_build_of_the_same_engine_harms_neither(road: Road) -> None:
    """Removals while engines are made and taken: every build ends with a whole engine."""
    for number in range(3):
        command = [trtkit_path(), *map(str, road.arguments(f"beside{number}", "busy"))]
        building = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while building.poll() is None:
            if (road.root / "busy" / "trtkit-store.json").exists():
                ran = trtkit("engines", "prune", road.root / "busy", "--unused")
                assert 0 == ran.code, ran.err
        assert 0 == building.returncode, building.stderr and building.stderr.read()
        assert tree(road.root / "engine") == tree(road.root / f"beside{number}")
        shutil.rmtree(road.root / f"beside{number}")
