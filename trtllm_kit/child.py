"""Child processes that end when trtkit ends, however it ends, with all that they started."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from trtllm_kit.errors import MissingTool

_PR_SET_PDEATHSIG = 1
"""``prctl(2)``: the signal a process gets when its parent ends, however it ends."""
_LIBC = ctypes.CDLL(None, use_errno=True)
Stream = int | IO[Any]


def start(
    argv: Sequence[str],
    *,
    stdout: Stream,
    stderr: Stream,
    stdin: Stream = subprocess.DEVNULL,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; call while no thread is at work. Raises ``MissingTool``."""
    try:
        return subprocess.Popen(
            argv,
            cwd=folder,
            env=os.environ | (env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=functools.partial(_end_with, os.getpid()),
        )
    except (FileNotFoundError, PermissionError):
        raise MissingTool(
            f"cannot run {argv[0]}", why="there is no such program, or it may not be run", hint=f"install {argv[0]}"
        ) from None


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the child's session, also when trtkit itself is interrupted."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _end_with(parent: int) -> None:
    """In the child: end when trtkit is killed, so that no program writes into the stage of the run after it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
