"""``trtkit deploy``: make the model repository from an engine, and start the server that reads it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES
from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.options import (
    DryRunOption,
    LockWaitOption,
    LogFileOption,
    LogKeepOption,
    LogSizeOption,
    OutOption,
    ProfileOption,
    UnattendedOption,
)
from trtllm_kit.cli.replan import replan
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.unattended import Logging, begin
from trtllm_kit.errors import UsageError
from trtllm_kit.staging import LOCK_SECONDS

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.repository.compose import Deployment
    from trtllm_kit.serve.launch import Urls
    from trtllm_kit.serve.process import Server
    from trtllm_kit.serve.run_record import RecordedUrls

EngineArgument = Annotated[Path, typer.Argument(metavar="ENGINE", help="Folder that trtkit build made.")]


def deploy(
    context: typer.Context,
    engine: EngineArgument,
    profile: ProfileOption,
    out: OutOption,
    *,
    start: Annotated[bool, typer.Option("--start", help="Start tritonserver on it; Ctrl-C stops it cleanly.")] = False,
    background: Annotated[
        bool,
        typer.Option(
            "--background", help="With --start: leave the server running, or the one that runs; trtkit stop ends it."
        ),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="With --background: replace a server that runs on what the folder held before."),
    ] = False,
    dry_run: DryRunOption = False,
    lock_wait: LockWaitOption = LOCK_SECONDS,
    unattended: UnattendedOption = False,
    log_file: LogFileOption = None,
    log_size: LogSizeOption = LOG_BYTES,
    log_keep: LogKeepOption = LOG_FILES,
) -> int:
    """Write the Triton model repository of a profile for ENGINE; with --start serve it."""
    _require_together(start=start, background=background, restart=restart)
    session = begin(context.obj, Logging(log_file, log_size, log_keep), unattended=unattended, dry_run=dry_run)
    made = replan(engine, profile)
    if dry_run:
        return run_dry(session, made)
    deployment = write_repository(session, engine, made, out, lock_seconds=lock_wait)
    if not start:
        show_deployment(session, out, deployment)
        return 0
    if background:
        return run_background(session, made, out, deployment, restart=restart, lock_seconds=lock_wait)
    return run_foreground(session, made, out, deployment, lock_seconds=lock_wait)


def _require_together(*, start: bool, background: bool, restart: bool) -> None:
    if background and not start:
        raise UsageError("--background without --start", why="there is nothing to leave running", hint="add --start")
    if restart and not background:
        raise UsageError(
            "--restart without --background",
            why="only a server that was left running can be replaced",
            hint="add --start --background",
        )


def write_repository(
    session: Session, engine: Path, made: Plan, out: Path, *, lock_seconds: float = LOCK_SECONDS
) -> Deployment:
    """Write the repository, or keep the one that is up to date."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.build.store import note_use_of
    from trtllm_kit.repository.compose import deploy as compose

    note_use_of(engine, out)  # first, so that nobody removes the engine while it is read
    deployment = compose(engine, made, out, lock_seconds=lock_seconds)
    if not deployment.up_to_date:
        append_log(out, {"verb": "deploy", "digest": deployment.manifest.digest, "run": session.outlet.run})
    return deployment


def show_deployment(session: Session, out: Path, deployment: Deployment, server: dict[str, Any] | None = None) -> None:
    """Show what was made and the server on it; one that runs on an older repository is named, it keeps what it has."""
    older = serving_older(out, deployment) if server is None else None
    if older is not None:
        session.log(f"warning: process {older} still serves the older {out}; trtkit stop {out}, then start again")
    note = f", while process {older} still serves the older one" if older is not None else ""
    show_made(session, out, deployment.manifest, up_to_date=deployment.up_to_date, server=server, note=note)


def serving_older(repository: Path, deployment: Deployment) -> int | None:
    """Return the process that serves what the repository held before, if one does."""
    from trtllm_kit.serve.run_record import is_running, read_record

    record = read_record(repository)
    if record is None or record.digest == deployment.manifest.digest:
        return None
    return record.pid if is_running(record) else None


def run_dry(session: Session, made: Plan) -> int:
    """Show every file that would be written, and config.pbtxt whole."""
    from trtllm_kit.repository.compose import repository_files

    files = repository_files(made)
    rows = [(name, f"{len(text.encode()):,} bytes") for name, text in files.items()]
    shown = [text for name, text in files.items() if name.endswith("config.pbtxt")]
    session.result({"files": files}, lambda: "\n".join([table(("file", "size"), rows), *shown, "nothing was written"]))
    return 0


def run_background(
    session: Session, made: Plan, repository: Path, deployment: Deployment, *, restart: bool, lock_seconds: float
) -> int:
    """See to it that a server runs on the repository, and leave it running."""
    from trtllm_kit.serve.background import Wanted, keep_running

    wanted = Wanted(repository, made.serve, made.variables)
    kept = keep_running(wanted, session.progress(), restart=restart, lock_seconds=lock_seconds)
    server = {"pid": kept.pid, "started": kept.started, "urls": kept.urls.model_dump()}
    if kept.replaced is not None:
        server["replaced"] = kept.replaced
    show_deployment(session, repository, deployment, server)
    if not kept.started:
        session.log(f"process {kept.pid} serves it already")
        return 0
    _say_ready(session, kept.urls)
    session.log(f"running in the background as process {kept.pid}; trtkit stop {repository} ends it")
    return 0


def run_foreground(
    session: Session, made: Plan, repository: Path, deployment: Deployment, *, lock_seconds: float
) -> int:
    """Start the server, wait until it is ready, and stay with it."""
    with start_server(session, made, repository, lock_seconds=lock_seconds) as server:
        urls = {"http": server.urls.http, "grpc": server.urls.grpc, "metrics": server.urls.metrics}
        show_deployment(session, repository, deployment, {"pid": server.pid, "started": True, "urls": urls})
        _say_ready(session, server.urls)
        return _stay(session, server)


def _say_ready(session: Session, urls: Urls | RecordedUrls) -> None:
    session.log(f"ready: {urls.http} (HTTP), {urls.grpc} (gRPC), {urls.metrics} (metrics)")


def start_server(session: Session, made: Plan, repository: Path, *, lock_seconds: float = LOCK_SECONDS) -> Server:
    """Start tritonserver on a repository and wait until it is ready; it is stopped again when it is not."""
    from trtllm_kit.serve.process import start

    return start(repository, made.serve, made.variables, session.progress(), lock_seconds=lock_seconds)


def _stay(session: Session, server: Server) -> int:
    try:
        session.log("Ctrl-C stops the server")  # within: from this word on it does
        while server.running():
            time.sleep(0.2)
    except KeyboardInterrupt:
        session.log("stopping the server")
        return 0
    server.raise_if_exited()
    return 0
