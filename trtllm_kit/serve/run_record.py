"""What a running server leaves beside its repository, so that another process can ask about it and end it.

A server and its stubs have the run's unique shared memory prefix among the words of their command lines. They are
found by that, so a record that outlived its server never leads to a process that took over its number.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trtllm_kit.artifact import first_fault
from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import replace_text
from trtllm_kit.progress import Progress, Silent
from trtllm_kit.serve.launch import EXIT_TIMEOUT_SECONDS, RUN_MARK, STUB, backend_config

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # where Triton's Python backend puts it
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0
_STUBLESS_SECONDS = 5.0
"""How long a server without any stub is waited for: it ends in 3 s, or waits for a request that cannot finish."""
_SILENT = Silent()


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedUrls(_Frozen):
    """Where the server is reached."""

    http: str
    grpc: str
    metrics: str


class RunRecord(_Frozen):
    """One running server."""

    pid: int
    started_at: float
    """Seconds since 1970."""
    urls: RecordedUrls
    shm_prefix: str
    log: str
    workspace: str
    """Temporary folder that goes when the server goes."""
    digest: str = ""
    """Manifest digest of the repository that the server loaded; empty when it is not known."""
    ranks: tuple[int, ...] = ()
    """The process of each of its ranks, when the server was ready; none where it has no ranks of their own."""


def record_file(repository: Path) -> Path:
    """Name the file beside a repository that tells of its running server."""
    folder = repository.resolve()
    return folder.with_name(folder.name + ".run.json")


def read_record(repository: Path) -> RunRecord | None:
    """Read the record of a repository's server; None when there is none. Raises ``ManifestError``, ``StorageError``."""
    path = record_file(repository)
    try:
        return RunRecord.model_validate(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValidationError, ValueError) as error:
        raise ManifestError(
            f"the record of the running server {path} cannot be read",
            why=f"it is not a run record: {first_fault(error)}",
            hint=f"remove {path} when no server runs",
        ) from None
    except OSError as error:
        raise storage_error(error, "reading the record of the running server") from None


def write_record(repository: Path, record: RunRecord) -> None:
    """Write the record whole or not at all; raises ``StorageError``."""
    path = record_file(repository)
    text = json.dumps(record.model_dump(), indent=1)  # ASCII: a path may hold bytes that are no text
    try:
        replace_text(path, text + "\n")
    except OSError as error:
        raise storage_error(error, "recording the running server") from None


def is_running(record: RunRecord) -> bool:
    """Whether the recorded server still runs."""
    return record.pid in server_processes(record.shm_prefix)


def server_processes(shm_prefix: str) -> tuple[int, ...]:
    """Return the processes that were started as this server: tritonserver, and the launcher around it if any."""
    mark = backend_config(shm_prefix)
    return tuple(pid for pid, words in _command_lines() if mark in words)


def stub_processes(shm_prefix: str) -> tuple[int, ...]:
    """Return the stubs of this server."""
    stubs = ((pid, words) for pid, words in _command_lines() if Path(words[0]).name == STUB)
    return tuple(pid for pid, words in stubs if any(word.startswith(shm_prefix) for word in words))


def run_processes(shm_prefix: str) -> tuple[int, ...]:
    """Return every process of the run: server, stubs, launcher, and the ranks and workers they started.

    All but this process itself, which inherits the mark when it runs within a server.
    """
    mark = os.fsencode(f"{RUN_MARK}={shm_prefix}")
    marked = {pid for pid, _ in _command_lines() if mark in _environment_of(pid)} - {os.getpid()}
    return tuple(sorted(marked | set(_all_processes(shm_prefix))))


def rank_processes(shm_prefix: str) -> tuple[int, ...]:
    """Return the process that MPI started for each rank of the run, in the ranks' order: the oldest of each.

    A rank may start workers that end when their work is done; the oldest is the one without which nobody serves.
    """
    oldest: dict[int, tuple[int, int]] = {}
    for pid in run_processes(shm_prefix):
        words = dict(word.partition(b"=")[::2] for word in _environment_of(pid))
        rank = next((words[name] for name in _RANK_VARIABLES if words.get(name, b"").isdigit()), None)
        if rank is not None:
            age = (_started(pid), pid)
            oldest[int(rank)] = min(oldest.get(int(rank), age), age)
    return tuple(oldest[rank][1] for rank in sorted(oldest))


_RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK")
"""By which Open MPI and MPICH tell a process which rank it is."""


def _started(pid: int) -> int:
    """Return when a process was started, ticks since the machine's start; beyond all for one that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    except OSError:
        return sys.maxsize


def end_recorded(repository: Path, record: RunRecord, progress: Progress = _SILENT) -> None:
    """End the recorded server and remove what is left of it, also when it runs no more."""
    end_server(record.shm_prefix, Path(record.workspace), lambda: is_running(record), progress)
    record_file(repository).unlink(missing_ok=True)


def end_server(shm_prefix: str, workspace: Path, running: Callable[[], bool], progress: Progress = _SILENT) -> None:
    """End a server for good: it may finish its requests, then whatever is left of it is killed and removed.

    A second interrupt (Ctrl-C) while it finishes its requests kills it at once and is raised again.
    """
    try:
        if running():
            _signal(_all_processes(shm_prefix), signal.SIGCONT)  # a stopped process hears nothing else
            _signal(_told_to_stop(shm_prefix), signal.SIGTERM)
            _wait_for_requests(shm_prefix, running, progress)
    finally:
        _signal(run_processes(shm_prefix), signal.SIGKILL)
        _wait(lambda: not running() and not run_processes(shm_prefix), _KILL_SECONDS)
        for left in _SHARED_MEMORY.glob(f"{shm_prefix}*"):
            left.unlink(missing_ok=True)
        shutil.rmtree(workspace, ignore_errors=True)


def _wait_for_requests(shm_prefix: str, running: Callable[[], bool], progress: Progress) -> None:
    """Wait until the server has ended by itself, or its time is over, or its last stub went a while ago."""
    deadline = time.monotonic() + EXIT_TIMEOUT_SECONDS + _KILL_SECONDS
    stubless = time.monotonic() + _STUBLESS_SECONDS
    progress.start("waiting for running requests", EXIT_TIMEOUT_SECONDS + _KILL_SECONDS, "seconds")
    try:
        while running() and time.monotonic() < min(deadline, stubless):
            if stub_processes(shm_prefix):
                stubless = time.monotonic() + _STUBLESS_SECONDS
            time.sleep(_POLL_SECONDS)
            progress.advance(_POLL_SECONDS)
    finally:
        progress.finish()


def _told_to_stop(shm_prefix: str) -> tuple[int, ...]:
    """Return the tritonserver itself, so that a launcher around it ends in its own way; all when none is named so."""
    marked = server_processes(shm_prefix)
    named = tuple(pid for pid, words in _command_lines() if pid in marked and Path(words[0]).name == "tritonserver")
    return named or marked


def _all_processes(shm_prefix: str) -> tuple[int, ...]:
    return server_processes(shm_prefix) + stub_processes(shm_prefix)


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    """Yield every process with the words of its command line; a zombie has none and is left out."""
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue  # it ended meanwhile
        if line:
            yield int(entry.name), os.fsdecode(line).split("\0")


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended meanwhile, or is another user's


def _signal(pids: tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _wait(over: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not over() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
