"""The process table."""

from __future__ import annotations

import os
import subprocess
import sys

from trtllm_kit.health.sources import process


def test_this_process_lives() -> None:
    """The process that asks is running."""
    assert process.is_running(os.getpid())


def test_a_process_that_ended_is_gone_even_before_it_is_reaped() -> None:
    """A zombie does not count as running, and neither does a reaped process."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_running(child.pid)
    child.wait()
    assert not process.is_running(child.pid)


def test_without_a_proc_folder_a_signal_is_asked() -> None:
    """The other way to ask gives the same answers."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert (True, False) == (process._answers_signal(os.getpid()), process._answers_signal(child.pid))
