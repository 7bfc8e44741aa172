"""Runs a program of a step: in the stage, with a log and a deadline, and looks whether it left its outputs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trtllm_kit.build.runner import RUNNERS
from trtllm_kit.build.step import OWN_NUMBER, PYTHON, Run
from trtllm_kit.build.watch import Watch
from trtllm_kit.child import end, start
from trtllm_kit.errors import BuildFailed, KitError, MissingTool, storage_error
from trtllm_kit.progress import Progress, Silent
from trtllm_kit.units import counted, format_seconds
from trtllm_kit.upstream.build_errors import meaning_of

_TAIL_LINES = 5
_LOOK_SECONDS = 0.2
_SHOWN = 100
_CLEAN_UP_SECONDS = 30.0
_SEARCHED_BYTES = 1 << 20
"""How much of the end of a log is searched for known messages."""


def run(
    step: Run, folder: Path, log: Path, progress: Progress | None = None, places: Mapping[str, Path] | None = None
) -> None:
    """Run a step's program in ``folder``, its output appended to ``log`` and its phases told to ``progress``.

    ``places`` are what the placeholders of its words stand for. Raises ``BuildFailed`` with what is known of the
    message and the last log lines when it fails, runs past its deadline or leaves an output out, ``MissingTool`` when
    there is no such program.
    """
    words = {PYTHON: sys.executable, OWN_NUMBER: str(os.getpid())}
    words |= {name: str(place) for name, place in (places or {}).items()}
    try:
        with log.open("ab") as output:
            begin = output.tell()
            output.write(f"$ {step.subject()}\n".encode())
            output.flush()
            with log.open("rb") as lines:
                lines.seek(begin)
                code = _wait(step, words, folder, output.fileno(), Watch(lines, progress or Silent(), step))
    except MissingTool as error:
        if step.release is None:
            raise
        hint = f"install {step.argv[0]}, or set build.runner to one of {', '.join(RUNNERS)} that this machine has"
        raise MissingTool(error.what, why=error.why, hint=hint) from None
    except OSError as error:
        raise storage_error(error, "writing the build log") from error
    if code is None:
        raise _failed(step, log, begin, f"it was stopped after {format_seconds(step.timeout_seconds)}", 0, stopped=True)
    if code != 0:
        raise _failed(step, log, begin, f"it exited with {code}", code)
    missing = [name for name in step.outputs if not (folder / name).is_file()]
    if missing:
        raise _failed(step, log, begin, f"it exited with 0 and left no {', '.join(missing)}", code)


def _wait(step: Run, words: Mapping[str, str], folder: Path, output: int, watch: Watch) -> int | None:
    """Return the exit code, or None when it was stopped at the deadline; leave no process behind."""
    argv = [_filled(word, words) for word in step.argv]
    child = start(argv, stdout=output, stderr=subprocess.STDOUT, folder=folder, env=step.env)
    until = time.monotonic() + step.timeout_seconds
    try:
        while time.monotonic() < until:
            try:
                return child.wait(min(_LOOK_SECONDS, max(0.0, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                watch.look()
        return None
    finally:
        watch.end()
        end(child)
        if step.afterwards:
            _clean_up([_filled(word, words) for word in step.afterwards])


def _clean_up(argv: list[str]) -> None:
    """End what outlives the program; that there is nothing left to end is no failure."""
    try:
        child = start(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except KitError:
        return
    try:
        child.wait(_CLEAN_UP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        end(child)


def _filled(word: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def _failed(step: Run, log: Path, begin: int, why: str, code: int, *, stopped: bool = False) -> BuildFailed:
    text = _said(log, begin)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("$ ")]
    words = f"its last words: {' / '.join(lines[-_TAIL_LINES:]) or 'none'}"
    known = meaning_of(text, code, step.release) if step.release else None
    what = f"build step failed: {_short(step.subject())}"
    if known is None:
        longer = "raise build.timeout if the log shows it at work; " if stopped and step.release else ""
        return BuildFailed(what, why=f"{why}; {words}", hint=f"{longer}read {log}")
    return BuildFailed(what, why=f"{known.cause}; {why}; {words}", hint=f"{known.fix}; the log is {log}")


def _short(command: str) -> str:
    """Cut a command to a line's length between two words; the log begins with the whole of it."""
    if len(command) <= _SHOWN:
        return command
    shown = command[:_SHOWN].rpartition(" ")[0] or command[:_SHOWN]
    return f"{shown} ... ({counted(len(command.split()), 'word')}, all in the log)"


def _said(log: Path, begin: int) -> str:
    """Return what this run said: its whole output, or the end of a very long one."""
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - _SEARCHED_BYTES))
        return file.read().decode("utf-8", errors="replace")
