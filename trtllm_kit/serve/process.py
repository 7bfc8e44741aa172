"""Runs a server: starts it, waits until it is ready, and ends it with nothing left behind."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.errors import AlreadyRunning, ServerFailed, storage_error
from trtllm_kit.progress import Progress, Silent
from trtllm_kit.resources import triton_models
from trtllm_kit.serve import log as server_log
from trtllm_kit.serve.client import ready
from trtllm_kit.serve.launch import ServerCommand, Urls, server_command
from trtllm_kit.serve.listen import check_ports, resolved
from trtllm_kit.serve.run_record import (
    RecordedUrls,
    RunRecord,
    end_recorded,
    end_server,
    is_running,
    rank_processes,
    read_record,
    record_file,
    write_record,
)
from trtllm_kit.serve.startable import require_one_server
from trtllm_kit.serve.tritonserver import find_tritonserver
from trtllm_kit.spec.profile import Serve
from trtllm_kit.staging import LOCK_SECONDS, locked

_POLL_SECONDS = 0.1
_SILENT = Silent()


class Server:
    """One tritonserver. As a context manager it is stopped at the end; ``keep`` leaves it running instead."""

    def __init__(self, command: ServerCommand, log: Path, digest: str = "") -> None:
        """Prepare a server on the repository with that manifest digest; nothing is started yet."""
        self.command = command
        self.digest = digest
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int:
        """Process id of the server (or of what launches it)."""
        return self._started().pid

    @property
    def urls(self) -> Urls:
        """Where the server is reached."""
        return self.command.urls

    def start(self) -> None:
        """Start the process and record it; raises ``StorageError`` when log or record cannot be written."""
        try:
            self._make_workspace()
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self.command.argv,
                    env=dict(self.command.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a Ctrl-C in the terminal is ours to pass on
                )
        except OSError as error:
            raise storage_error(error, "starting the server") from None
        write_record(self.command.repository, self._record(self._process.pid))

    def wait_ready(self, deadline_seconds: float, progress: Progress) -> None:
        """Wait until every model is ready and the metrics page answers, which Triton opens a moment later.

        Then the processes of its ranks are recorded, for there are no more to come.
        Raises ``ServerFailed`` with the log's last lines when that fails.
        """
        started = time.monotonic()
        progress.start("waiting for the server", deadline_seconds, "seconds")
        try:
            while not (self.running() and ready(self.urls.http) and self._metrics_open()):
                self._check_loading(time.monotonic() - started, deadline_seconds)
                time.sleep(_POLL_SECONDS)
                progress.advance(_POLL_SECONDS)
        finally:
            progress.finish()
        ranks = rank_processes(self.command.shm_prefix)
        record = read_record(self.command.repository) if ranks else None
        if record is not None:
            write_record(self.command.repository, record.model_copy(update={"ranks": ranks}))

    def _metrics_open(self) -> bool:
        host = self.urls.metrics.partition("//")[2].rpartition(":")[0].strip("[]")
        try:
            with socket.create_connection((host, self.command.ports["metrics"]), timeout=1):
                return True
        except OSError:
            return False

    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def raise_if_exited(self) -> None:
        """Raise ``ServerFailed`` when the server ended by itself with anything but success."""
        code = self._started().poll()
        if code:
            raise self._failure(f"tritonserver ended {_how(code)}", f"read the whole log: {self.log}")

    def tail(self, count: int = server_log.TAIL_LINES) -> list[str]:
        """Return the last lines of the log, without the noise of a machine that has no GPU."""
        return list(server_log.tail(self.log, count))

    def stop(self) -> None:
        """End the server: running requests may finish, then no process, shared memory or record is left."""
        if not self._stopped:
            end_server(self.command.shm_prefix, self.command.workspace, self.running)
            record_file(self.command.repository).unlink(missing_ok=True)
            self._stopped = True

    @contextmanager
    def keep(self) -> Iterator[Self]:
        """Leave the server running at the end; an error inside still stops it."""
        try:
            yield self
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        """Give the running server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("the server was not started", why="start() comes first", hint="call start()")
        return self._process

    def _make_workspace(self) -> None:
        self.command.workspace.mkdir(mode=0o700)
        for name, target in self.command.links.items():
            link = self.command.workspace / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)

    def _record(self, pid: int) -> RunRecord:
        return RunRecord(
            pid=pid,
            started_at=time.time(),
            urls=RecordedUrls(http=self.urls.http, grpc=self.urls.grpc, metrics=self.urls.metrics),
            shm_prefix=self.command.shm_prefix,
            log=str(self.log),
            workspace=str(self.command.workspace),
            digest=self.digest,
        )

    def _check_loading(self, seconds: float, deadline_seconds: float) -> None:
        code = self._started().poll()
        if code is not None:
            raise self._failure(f"tritonserver ended {_how(code)} after {seconds:.1f} s", f"read the log: {self.log}")
        if seconds > deadline_seconds:
            raise self._failure(
                f"tritonserver was not ready after {deadline_seconds:g} s",
                "raise serve.start_grace in the profile if it was still loading",
            )

    def _failure(self, what: str, hint: str) -> ServerFailed:
        why = server_log.reason(self.log) or "its log gives no reason"
        return ServerFailed(what, why=why, hint=hint, log=tuple(self.tail()))


def start(
    repository: Path,
    serve: Serve,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    lock_seconds: float = LOCK_SECONDS,
) -> Server:
    """Start a server on a repository and wait until it is ready; when that fails nothing is left behind.

    ``environment`` adds to this process's own. Raises ``AlreadyRunning``, ``PortInUse``, ``CannotListen``,
    ``ServerFailed``, ``MissingTool``, ``MissingExtra``, ``ManifestError`` for a folder that is no repository of
    trtkit, or ``LockTimeout`` when another run was still starting one after ``lock_seconds``.
    """
    folder = repository.resolve()
    with starting(folder, lock_seconds):
        _check_not_running(folder)
        server = prepare(folder, serve, environment)
        bring_up(server, serve.start_grace, progress)
    return server


@contextmanager
def starting(repository: Path, seconds: float) -> Iterator[None]:
    """Keep other runs from starting or ending a server on that repository; raises ``LockTimeout``, ``StorageError``."""
    try:
        with locked(repository.resolve(), seconds, "start"):
            yield
    except OSError as error:
        raise storage_error(error, "taking the lock of the server") from error


def prepare(
    repository: Path, serve: Serve, environment: Mapping[str, str], held: frozenset[int] = frozenset()
) -> Server:
    """Check everything that can be checked before a start, and return the server; ``held`` as in ``check_ports``."""
    inherited = dict(os.environ) | dict(environment)
    manifest = read_manifest(repository, "repository")
    require_one_server(manifest.facts, repository)
    installation = find_tritonserver(inherited, _launched(manifest), manifest.facts.get("ranks", 1))
    listening = resolved(serve)
    check_ports(listening, held)
    workspace = _temporary_folder() / f"trtkit-{secrets.token_hex(4)}"
    stand_in = stand_in_files() if _rehearses_engines(manifest) else {}
    command = server_command(repository, listening, inherited, installation, workspace, stand_in)
    return Server(command, repository.with_name(repository.name + ".server.log"), manifest.digest)


def _rehearses_engines(manifest: Manifest) -> bool:
    """Whether a stand-in has to take the place of the backend that runs engines."""
    return bool(manifest.facts.get("engines")) and manifest.facts.get("runtime") != "tensorrt_llm"


def _launched(manifest: Manifest) -> str:
    """Return the runtime that the server is found for: engines and instances need no launcher of ranks."""
    alone = manifest.facts.get("engines") or manifest.facts.get("instances", 1) > 1
    return "" if alone else str(manifest.facts.get("runtime", ""))


def stand_in_files() -> dict[str, Path]:
    """Return the files of what stands in for the backend of engines, by name; it shares some of the llmapi model's."""
    folder = triton_models()
    shared = ("ask", "faults", "lifeline", "metrics", "pacer", "runtime", "timing")
    own = {path.name: path for path in sorted((folder / "tensorrtllm").glob("*.py"))}
    return own | {f"{name}.py": folder / "llmapi" / f"{name}.py" for name in shared}


def _temporary_folder() -> Path:
    """Return the system's folder, or /tmp when its path is not ASCII, which Triton's Python stub could not read."""
    folder = tempfile.gettempdir()
    return Path(folder if folder.isascii() else "/tmp")  # noqa: S108  # a folder of a random name is made in it


def bring_up(server: Server, deadline_seconds: float, progress: Progress) -> None:
    """Start a prepared server and wait until it is ready; when that fails nothing of it is left."""
    with server.keep():
        server.start()
        server.wait_ready(deadline_seconds, progress)


def stop_background(
    repository: Path, progress: Progress = _SILENT, *, lock_seconds: float = LOCK_SECONDS
) -> int | None:
    """End the server that a repository's run record tells of; return its process id, None when none was running.

    ``progress`` is told how long the server has been waiting for its running requests. Raises ``LockTimeout`` when
    another run was still starting or replacing a server on the repository after ``lock_seconds``.
    """
    if read_record(repository) is None:
        return None
    with starting(repository, lock_seconds):
        record = read_record(repository)
        if record is None:  # whoever held the lock ended it
            return None
        was_running = is_running(record)
        end_recorded(repository, record, progress)
    return record.pid if was_running else None


def _check_not_running(repository: Path) -> None:
    """Refuse a second server on a repository; clear away what a killed one left."""
    record = read_record(repository)
    if record is None:
        return
    if is_running(record):
        raise AlreadyRunning(
            f"a server runs on {repository} already",
            why=f"process {record.pid} answers on {record.urls.http}",
            hint=f"trtkit stop {repository}",
        )
    end_recorded(repository, record)


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
