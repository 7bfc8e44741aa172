"""Runs a program of a step: in the stage, with a log and a deadline, and looks whether it left its outputs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

from trtllm_kit.build.step import PYTHON, Run
from trtllm_kit.errors import BuildFailed, MissingTool, storage_error
from trtllm_kit.units import format_seconds

_TAIL_LINES = 5
_PR_SET_PDEATHSIG = 1
"""``prctl(2)``: the signal a process gets when its parent ends, however it ends."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def run(step: Run, folder: Path, log: Path) -> None:
    """Run a step's program in ``folder``, its output appended to ``log``.

    Raises ``BuildFailed`` with the last log lines when it fails, runs past its deadline or leaves an output out,
    ``MissingTool`` when there is no such program.
    """
    argv = [sys.executable if word == PYTHON else word for word in step.argv]
    try:
        with log.open("a", encoding="utf-8") as output:
            output.write(f"$ {step.subject()}\n")
            output.flush()
            code = _wait(argv, step, folder, output.fileno())
    except OSError as error:
        raise storage_error(error, "writing the build log") from error
    if code != 0:
        raise _failed(step, log, f"it exited with {code}")
    missing = [name for name in step.outputs if not (folder / name).is_file()]
    if missing:
        raise _failed(step, log, f"it exited with 0 and left no {', '.join(missing)}")


def _wait(argv: list[str], step: Run, folder: Path, output: int) -> int | str:
    """Return the exit code, or a word for having been stopped at the deadline; leave no process behind."""
    try:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            env=os.environ | step.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=functools.partial(_end_with, os.getpid()),  # no thread of trtkit is at work here
        )
    except (FileNotFoundError, PermissionError):
        raise MissingTool(
            f"cannot run {argv[0]}", why="there is no such program, or it may not be run", hint=f"install {argv[0]}"
        ) from None
    try:
        return child.wait(step.timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"nothing: it was stopped after {format_seconds(step.timeout_seconds)}"
    finally:
        _end(child)


def _end_with(parent: int) -> None:
    """In the child: end when trtkit is killed, so that no program writes into the stage of the run after it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the child's session, also when trtkit itself is interrupted."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _failed(step: Run, log: Path, why: str) -> BuildFailed:
    lines = log.read_text("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    said = " / ".join(line for line in lines if not line.startswith("$ "))
    return BuildFailed(
        f"build step failed: {step.subject()}",
        why=f"{why}; its last words: {said or 'none'}",
        hint=f"read {log}",
    )
