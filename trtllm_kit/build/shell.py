"""Runs a program of a step: in the stage, with a log and a deadline, and looks whether it left its outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trtllm_kit.build.step import PYTHON, Run
from trtllm_kit.child import end, start
from trtllm_kit.errors import BuildFailed, storage_error
from trtllm_kit.units import format_seconds

_TAIL_LINES = 5


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
    child = start(argv, stdout=output, stderr=subprocess.STDOUT, folder=folder, env=step.env)
    try:
        return child.wait(step.timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"nothing: it was stopped after {format_seconds(step.timeout_seconds)}"
    finally:
        end(child)


def _failed(step: Run, log: Path, why: str) -> BuildFailed:
    lines = log.read_text("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    said = " / ".join(line for line in lines if not line.startswith("$ "))
    return BuildFailed(
        f"build step failed: {step.subject()}",
        why=f"{why}; its last words: {said or 'none'}",
        hint=f"read {log}",
    )
