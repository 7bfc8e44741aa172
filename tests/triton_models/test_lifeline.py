"""Ending a stub whose Triton is gone, with real processes in the places of both."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trtllm_kit.resources import triton_models

MODELS = triton_models() / "llmapi"
WATCHED = "import lifeline, time; lifeline.watch_parent(); print('up', flush=True); time.sleep(60)"
BLOCKED = """
import ctypes, lifeline
lifeline._PATIENCE_SECONDS = 0.5
print('up', flush=True)
with lifeline.metric_calls():
    ctypes.PyDLL(None).sleep(60)  # PyDLL keeps Python's global lock, as a metric call on a dead server does
"""
HEALTHY = """
import lifeline, time
lifeline._PATIENCE_SECONDS = 0.2
for _ in range(3):
    with lifeline.metric_calls():
        pass
time.sleep(0.5)
print('up', flush=True)
"""


def orphan(code: str) -> int:
    """Run ``code`` as the child of a process that ends when the child says it is up; return the child's pid."""
    parent = (
        "import subprocess, sys; from subprocess import DEVNULL, PIPE\n"
        "command = [sys.executable, '-c', sys.argv[1]]\n"
        "child = subprocess.Popen(command, cwd=sys.argv[2], stdout=PIPE, stderr=DEVNULL)\n"
        "child.stdout.readline(); print(child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", parent, code, MODELS], capture_output=True, text=True, check=True)
    return int(done.stdout)


def ends(pid: int, seconds: float) -> bool:
    """Whether a process that is no child of this one ends in that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    os.kill(pid, 9)
    return False


@pytest.mark.parametrize("code", [WATCHED, BLOCKED], ids=["watched", "blocked"])
def test_an_orphan_ends(code: str) -> None:
    """A stub ends within a second of its parent, also when a metric call holds Python's global lock for ever."""
    assert ends(orphan(code), 2.0)


def test_a_call_that_returns_harms_nobody() -> None:
    """The guard's timer is off again after each call."""
    done = subprocess.run([sys.executable, "-c", HEALTHY], cwd=MODELS, capture_output=True, text=True, check=True)

    assert ("up\n", "") == (done.stdout, done.stderr)
