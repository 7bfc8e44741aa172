"""Runs a verb in a process of its own that something befalls at a chosen file operation below a folder.

An operation is what changes the disk: opening for writing, a write (cut in half), a flush to disk, making, renaming
or removing a file, a folder or a link. The n-th is reached and not done, so that every state of the disk that the
run passes through is left behind by some n. What befalls it is death, or whatever else is asked for.
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["trtllm_kit.cli.app", "trtllm_kit.checkpoint.convert", "trtllm_kit.build.engine", "trtllm_kit.repository.compose"]
)


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    """Exit code, or the negative number of the signal."""
    operations: int
    """File operations it reached."""
    said: str
    """Stdout and stderr."""


Act = Callable[[], None]
"""What befalls a run; a function that can be pickled."""


def die() -> None:
    """End as the out-of-memory killer ends a process."""
    os.kill(os.getpid(), signal.SIGKILL)


def run_verb(
    *arguments: str | Path,
    root: Path,
    at: int = 0,
    act: Act = die,
    first: Act | None = None,
    shard_bytes: int = 40_000,
) -> Ended:
    """Run a verb; ``act`` at its operation number ``at`` below ``root``, counted from 1; ``first`` before it begins."""
    reached = _CONTEXT.Value("i", 0)
    log = root.with_name(f"{root.name}.said")
    watch = _Watch(str(root), at, act, reached)
    process = _CONTEXT.Process(target=_run, args=([*map(str, arguments)], watch, first, shard_bytes, str(log)))
    process.start()
    try:
        process.join(120)
        assert process.exitcode is not None, "it hung"
    finally:
        process.kill()
    said = log.read_text(errors="replace")
    log.unlink()
    return Ended(process.exitcode, reached.value, said)


def _run(arguments: list[str], watch: _Watch, first: Act | None, shard_bytes: int, log: str) -> None:
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    from trtllm_kit.checkpoint import convert, shards
    from trtllm_kit.cli.app import main

    convert.convert.__kwdefaults__["shard_bytes"] = shard_bytes
    shards.MARK_BYTES = shard_bytes // 5
    _move_elsewhere()
    if first is not None:
        first()
    watch.install()
    sys.argv = ["trtkit", *arguments]
    code = 0
    try:
        code = main() or 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _move_elsewhere() -> None:
    """Give every run another host and another clock, so that either of them in an artifact shows."""
    gmtime, moved = time.gmtime, os.getpid() * 1000
    socket.gethostname = lambda: f"host-{os.getpid()}"
    time.gmtime = lambda seconds=None: gmtime((time.time() if seconds is None else seconds) + moved)


class _Watch:
    """Counts operations below a folder, and acts at one of them."""

    def __init__(self, root: str, at: int, act: Act, reached: Any) -> None:
        self._root = root
        self._at = at
        self.act = act
        self._reached = reached

    def install(self) -> None:
        """Look at audit events, flushes and what is opened for writing."""
        sys.addaudithook(self._audit)
        os.fsync = functools.partial(self._then, os.fsync)
        io.open = functools.partial(_open, io.open, self)

    def concerns(self, path: object) -> bool:
        """Whether a path lies below the folder."""
        return isinstance(path, str | os.PathLike) and str(Path.cwd() / path).startswith(self._root)

    def step(self) -> bool:
        """Count an operation; return whether it is the one to act at."""
        self._reached.value += 1
        return bool(self._reached.value == self._at)

    def _then(self, act: Any, *arguments: Any) -> Any:
        if self.step():
            self.act()
        return act(*arguments)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if not opened and event not in _CHANGES:
            return
        within_open_folder = event in ("os.remove", "os.rmdir") and arguments[1] >= 0  # as shutil.rmtree works
        if (within_open_folder or self.concerns(arguments[0])) and self.step():
            self.act()


class _CutFile(io.FileIO):
    """A file whose fatal write is half done."""

    watch: _Watch

    def write(self, data: Any) -> int:
        """Write; at the fatal operation half of it, and the rest when the run goes on."""
        if not self.watch.step():
            return super().write(data)
        whole = memoryview(data).cast("B")
        written = super().write(whole[: max(len(whole) // 2, 1)])
        self.watch.act()
        return written


def _open(real: Any, watch: _Watch, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
    if "r" in mode or not watch.concerns(file):
        return real(file, mode, buffering, *rest, **named)
    raw = _CutFile(file, mode.replace("b", "").replace("t", ""))
    raw.watch = watch
    if buffering == 0:
        return raw
    buffered = io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **named)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its path, and every link as what it leads to."""
    return {
        str(path.relative_to(folder)): os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def beside(out: Path) -> list[str]:
    """Return what stands beside an output and bears its name, hidden or not, the logs aside."""
    return sorted(
        path.name
        for path in out.parent.iterdir()
        if path.name != out.name and out.name in path.name and not path.name.endswith((".log.jsonl", ".build.log"))
    )
