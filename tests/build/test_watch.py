"""A builder's log is followed while it is written."""

from __future__ import annotations

from pathlib import Path

from trtllm_kit.build.step import Run
from trtllm_kit.build.watch import Watch

LOG = b"""[I] Loading weights of rank 0
[I] Build TensorRT engine Unnamed Network 0
[I] Engine serialized. Total time: 00:00:01
[I] Loading weights of rank 1
[I] Engine serialized. Total time: 00:00:02
"""


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.labels: list[str] = []
        self.done = 0.0
        self.ended = False

    def start(self, label: str, total: float, unit: str) -> None:
        """Note the label and begin to count again."""
        self.labels.append(f"{label} of {total:.0f} {unit}")
        self.done = 0.0

    def advance(self, amount: float) -> None:
        """Count."""
        self.done += amount

    def finish(self) -> None:
        """Note the end."""
        self.ended = True


def followed(tmp_path: Path, release: str | None) -> Told:
    """Follow a log that grows in the middle of a line."""
    step = Run(argv=("x",), outputs=("config.json", "rank0.engine", "rank1.engine"), timeout_seconds=1, release=release)
    told, path = Told(), tmp_path / "log"
    path.write_bytes(b"")
    with path.open("rb") as lines, path.open("ab") as output:
        watch = Watch(lines, told, step)
        for part in (LOG[:50], LOG[50:120], LOG[120:]):
            output.write(part)
            output.flush()
            watch.look()
        watch.end()
    return told


def test_phases_and_finished_ranks_are_told(tmp_path: Path) -> None:
    """Each phase names what is going on, and both ranks are counted at the end."""
    told = followed(tmp_path, "1.2.1")
    assert [
        "build: the builder starts of 2 ranks",
        "build: weights are read of 2 ranks",
        "build: kernels are tried of 2 ranks",
        "build: an engine is on disk of 2 ranks",
        "build: weights are read of 2 ranks",
        "build: an engine is on disk of 2 ranks",
    ] == told.labels
    assert (2.0, True) == (told.done, told.ended)


def test_programs_of_ours_are_not_followed(tmp_path: Path) -> None:
    """Their output says no phases."""
    assert [] == followed(tmp_path, None).labels
