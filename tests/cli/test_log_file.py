"""LogFile: lines under a run's name, rotation, and runs that write at the same time."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_kit.cli.log_file import LogFile
from trtllm_kit.errors import StorageError


def lines(log: Path) -> list[str]:
    """Read the texts of a log and of the older files beside it, the oldest first."""
    files = sorted(log.parent.glob(f"{log.name}*"), key=lambda path: (len(path.suffixes), path.name), reverse=True)
    return [line.split(" ", 3)[3] for path in files for line in path.read_text().splitlines()]


def test_each_line_of_a_message_has_time_run_and_level(tmp_path: Path) -> None:
    """A message of several lines can be found whole by the run's name."""
    LogFile(tmp_path / "x.log", "r1").begin("one\n  two")
    first, second = (tmp_path / "x.log").read_text().splitlines()

    assert ["r1", "info", "", "", "", "", "one"] == first.split(" ")[1:]
    assert second.endswith(" r1 info       two")


def test_bytes_that_are_no_text_are_written_as_escapes(tmp_path: Path) -> None:
    """A path with a stray byte ends no run."""
    LogFile(tmp_path / "x.log", "r").write("info", "/srv/\udcff")

    assert (tmp_path / "x.log").read_text().endswith("/srv/\\udcff\n")


def test_keeping_every_log_takes_no_longer_than_the_logs_there_are(tmp_path: Path) -> None:
    """Rotation looks at the files that stand there and not at every number up to keep, which would never end."""
    file = LogFile(tmp_path / "x.log", "r", limit_bytes=1, keep=10**20)
    for text in ("one", "two", "three"):
        file.write("info", text)

    assert ["x.log", "x.log.1", "x.log.2"] == sorted(path.name for path in tmp_path.iterdir())
    assert ["one", "two", "three"] == [line.strip() for line in lines(tmp_path / "x.log")]


@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=30), keep=st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_no_file_is_larger_than_asked_nor_are_there_more(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], keep: int
) -> None:
    """Whatever is written, at most keep + 1 files stand there, each within the limit, the newest lines complete."""
    log = tmp_path_factory.mktemp("log") / "x.log"
    file = LogFile(log, "r", limit_bytes=256, keep=keep)
    for number, size in enumerate(sizes):
        file.write("info", f"{number:03d}" + "x" * size)
    found = [int(text.strip()[:3]) for text in lines(log)]

    assert len(list(log.parent.iterdir())) <= keep + 1
    assert all(path.stat().st_size <= 256 for path in log.parent.iterdir())
    assert list(range(len(sizes) - len(found), len(sizes))) == found


def test_a_line_larger_than_the_limit_is_written_all_the_same(tmp_path: Path) -> None:
    """It has a file to itself."""
    file = LogFile(tmp_path / "x.log", "r", limit_bytes=64, keep=1)
    for letter in "abc":
        file.write("info", letter * 100)

    assert [letter * 100 for letter in "bc"] == [text.strip() for text in lines(tmp_path / "x.log")]


def write_many(log: Path, run: str, count: int) -> None:
    """Write numbered lines as one of several runs."""
    file = LogFile(log, run, limit_bytes=2000, keep=400)
    for number in range(count):
        file.write("info", f"{run}-{number}")


def test_runs_that_share_a_log_lose_and_tear_no_line(tmp_path: Path) -> None:
    """Four processes write and rotate at once; every line of each is there once."""
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=write_many, args=(tmp_path / "x.log", f"r{one}", 150)) for one in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert {f"r{one}-{number}" for one in range(4) for number in range(150)} == {
        text.strip() for text in lines(tmp_path / "x.log")
    }
    assert 600 == len(lines(tmp_path / "x.log"))
    assert len(list(tmp_path.iterdir())) > 5


def test_a_device_is_written_to_and_never_moved_aside(tmp_path: Path) -> None:
    """Only files rotate."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    file = LogFile(link, "r", limit_bytes=10, keep=1)
    file.begin("x" * 100)
    file.write("info", "y" * 100)

    assert ["null"] == [path.name for path in tmp_path.iterdir()]


def test_a_pipe_without_a_reader_is_an_error_and_no_wait(tmp_path: Path) -> None:
    """Opening it would wait for ever."""
    os.mkfifo(tmp_path / "x.log")

    with pytest.raises(StorageError, match="writing the log file"):
        LogFile(tmp_path / "x.log", "r").begin("x")
