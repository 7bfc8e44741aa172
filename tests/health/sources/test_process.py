"""The process table."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trtllm_kit.health.sources import process


def test_this_process_lives() -> None:
    """The process that asks is running, and so is the one of another user."""
    assert process.is_running(os.getpid())
    assert process.is_running(1)


@pytest.mark.parametrize("number", [0, -1, 1 << 70])
def test_what_is_no_number_of_a_process_is_not_running(number: int) -> None:
    """Zero and below name groups of processes, and a number beyond all is nobody's."""
    assert not process.is_running(number)


def test_a_process_that_ended_is_gone_even_before_it_is_reaped() -> None:
    """A zombie does not count as running, and neither does a reaped process."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_running(child.pid)
    child.wait()
    assert not process.is_running(child.pid)
