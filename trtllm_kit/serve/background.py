"""Sees to it that a server runs on what a repository holds now, as often as it is asked to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.artifact import read_manifest
from trtllm_kit.errors import KitError, OutdatedServer, ServerFailed
from trtllm_kit.progress import Progress
from trtllm_kit.serve.process import Server, bring_up, prepare, starting
from trtllm_kit.serve.run_record import RecordedUrls, RunRecord, end_recorded, is_running, read_record
from trtllm_kit.spec.profile import Serve
from trtllm_kit.staging import LOCK_SECONDS


@dataclass(frozen=True)
class Kept:
    """The server that runs now."""

    pid: int
    urls: RecordedUrls
    started: bool
    """It was started by this call; else it ran already."""
    replaced: int | None = None
    """Process id of the older server that made way for it."""


@dataclass(frozen=True)
class Wanted:
    """A server as the plan wants it."""

    repository: Path
    serve: Serve
    environment: Mapping[str, str]
    """Added to this process's own."""


def keep_running(
    wanted: Wanted, progress: Progress, *, restart: bool = False, lock_seconds: float = LOCK_SECONDS
) -> Kept:
    """Start a server in the background, or leave the one that runs on what the repository holds now.

    One that loaded something older is replaced under ``restart``: what can be refused is refused first, then it may
    finish its requests, and the new one is waited for. Raises what ``start`` raises, but ``AlreadyRunning``, and
    ``OutdatedServer`` for an older server without ``restart``.
    """
    folder = wanted.repository.resolve()
    with starting(folder, lock_seconds):
        record = read_record(folder)
        if record is None:
            return _started(wanted, progress)
        if not is_running(record):
            end_recorded(folder, record)  # clears away what a killed one left
            return _started(wanted, progress)
        now = read_manifest(folder, "repository").digest
        if record.digest == now:
            return Kept(record.pid, record.urls, started=False)
        if not restart:
            raise _outdated(wanted.repository, record, now)
        return _replaced(wanted, record, progress)


def _started(wanted: Wanted, progress: Progress) -> Kept:
    server = prepare(wanted.repository.resolve(), wanted.serve, wanted.environment)
    bring_up(server, wanted.serve.start_grace, progress)
    return _kept(server)


def _replaced(wanted: Wanted, old: RunRecord, progress: Progress) -> Kept:
    folder = wanted.repository.resolve()
    server = prepare(folder, wanted.serve, wanted.environment, held=_ports(old.urls))
    end_recorded(folder, old, progress)
    try:
        bring_up(server, wanted.serve.start_grace, progress)
    except KitError as error:
        raise ServerFailed(
            f"nothing serves {wanted.repository}: process {old.pid} was stopped, and the new server did not come up",
            why=f"{error.what}: {error.why}",
            hint=error.hint,
            log=error.evidence(),
        ) from error
    return _kept(server, old.pid)


def _kept(server: Server, replaced: int | None = None) -> Kept:
    urls = RecordedUrls(http=server.urls.http, grpc=server.urls.grpc, metrics=server.urls.metrics)
    return Kept(server.pid, urls, started=True, replaced=replaced)


def _ports(urls: RecordedUrls) -> frozenset[int]:
    ends = (url.removesuffix("/metrics").rpartition(":")[2] for url in (urls.http, urls.grpc, urls.metrics))
    return frozenset(int(end) for end in ends if end.isdigit())


def _outdated(repository: Path, record: RunRecord, now: str) -> OutdatedServer:
    loaded = f"manifest {record.digest[:12]}" if record.digest else "a manifest that its record does not tell"
    return OutdatedServer(
        f"process {record.pid} serves an older {repository}",
        why=f"it loaded {loaded}, and the folder holds {now[:12]} now",
        hint="add --restart, which stops it and starts one on the new repository",
    )
