"""Outlet: what goes to stderr, what to the log file, and what happens when the log fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trtllm_kit.cli import progress_lines
from trtllm_kit.cli.log_file import LogFile
from trtllm_kit.cli.outlet import Outlet


class Full(LogFile):
    """A log on a disk that is full."""

    def write(self, level: str, text: str) -> None:
        """Fail as the system does."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def test_unattended_work_speaks_in_the_log_and_errors_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages are for the log alone, an error is for the mail too, without colour."""
    outlet = Outlet(unattended=True, log=LogFile(tmp_path / "x.log", "r"))
    outlet.tell("working")
    outlet.complain("broken", "\033[31mbroken\033[0m")

    assert "broken\n" == capsys.readouterr().err
    assert ["working", "broken"] == [line.split()[-1] for line in (tmp_path / "x.log").read_text().splitlines()]


def test_a_log_that_fails_under_way_ends_no_work_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three hours of work are worth more than their log; cron mails that it is gone."""
    outlet = Outlet(unattended=True, log=Full(tmp_path / "x.log", "r"))
    outlet.tell("one")
    outlet.tell("two")
    outlet.end(0)

    assert 1 == capsys.readouterr().err.count("\n")
    assert outlet.log is None


def test_progress_goes_into_the_log_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten minutes of work are ten lines in the log, and under cron none on stderr."""
    now = [0.0]
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: now[0])
    progress = Outlet(unattended=True, log=LogFile(tmp_path / "x.log", "r")).progress()
    progress.start("writing weights", 600, "bytes")
    for _ in range(600):
        now[0] += 1
        progress.advance(1)
    progress.finish()
    found = (tmp_path / "x.log").read_text().splitlines()

    assert 10 == len(found)
    assert found[0].endswith("progress writing weights: 10 % of 600 B in 60 s, 1 B/s, 540 s left")
    assert "" == capsys.readouterr().err


def test_attended_progress_is_on_stderr_and_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each at its own pace: six lines a minute in a pipe, one in the log."""
    now = [0.0]
    monkeypatch.setattr(progress_lines.time, "monotonic", lambda: now[0])
    progress = Outlet(log=LogFile(tmp_path / "x.log", "r")).progress()
    progress.start("convert", 60, "layers")
    for _ in range(60):
        now[0] += 1
        progress.advance(1)

    assert (6, 1) == (capsys.readouterr().err.count("\n"), (tmp_path / "x.log").read_text().count("\n"))
