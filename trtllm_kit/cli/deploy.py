"""``trtkit deploy``: make the model repository from an engine, and what serves it, here or on a target."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.deploy_options import (
    BackgroundOption,
    EngineArgument,
    ForceOption,
    RestartOption,
    StartOption,
    TargetOption,
    TargetOutOption,
)
from trtllm_kit.cli.deploy_targets import Ready, changes_of, differences, document, targets_of, text
from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES
from trtllm_kit.cli.made import Besides, show_made
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
from trtllm_kit.cli.replan import replan_as
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
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile


def deploy(
    context: typer.Context,
    engine: EngineArgument,
    profile: ProfileOption,
    out: OutOption,
    *,
    start: StartOption = False,
    background: BackgroundOption = False,
    restart: RestartOption = False,
    target: TargetOption = [],  # noqa: B006  # never changed
    target_out: TargetOutOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    lock_wait: LockWaitOption = LOCK_SECONDS,
    unattended: UnattendedOption = False,
    log_file: LogFileOption = None,
    log_size: LogSizeOption = LOG_BYTES,
    log_keep: LogKeepOption = LOG_FILES,
) -> int:
    """Write the Triton model repository of a profile for ENGINE; with --start serve it, with --target elsewhere."""
    _require_together(start=start, background=background, restart=restart)
    session = begin(context.obj, Logging(log_file, log_size, log_keep), unattended=unattended, dry_run=dry_run)
    asked = asked_for(profile)
    made = _planned(session, engine, asked, out, start=start)
    ready = targets_of(target, made, asked, out, target_out)
    if dry_run:
        return run_dry(session, engine, made, out, ready)
    besides = _unedited(made, out, ready, force=force)
    deployment = write_repository(session, engine, made, out, lock_seconds=lock_wait)
    besides = write_targets(ready, besides, force=force, lock_seconds=lock_wait)
    if not start:
        show_deployment(session, out, deployment, besides=besides)
        return 0
    if background:
        return run_background(session, made, out, deployment, restart=restart, lock_seconds=lock_wait, besides=besides)
    return run_foreground(session, made, out, deployment, lock_seconds=lock_wait, besides=besides)


def _planned(session: Session, engine: Path, asked: tuple[LoadedProfile, Hardware], out: Path, *, start: bool) -> Plan:
    """Return the plan of the profile for the engine's model; what cannot be started here is refused with it."""
    from trtllm_kit.artifact import read_manifest
    from trtllm_kit.plan.serving_mode import instances
    from trtllm_kit.serve.startable import require_secrets, require_startable

    read_manifest(engine, "engine")  # first, so that another folder is told as such
    made = replan_as(engine, asked)
    loaded, hardware = asked
    if start:
        require_startable(made, hardware, out)
        require_secrets(loaded.profile.deploy.secret_environment, os.environ)
        servers = made.parallelism.replicas.value // instances(made)
        if servers > 1:
            session.log(f"--start starts one of {servers} servers; a --target starts all of them")
    return made


def _unedited(made: Plan, out: Path, ready: Sequence[Ready], *, force: bool) -> Besides:
    """Return how the repository changes; raises ``EditedFiles`` before the first byte for changes of a person."""
    from trtllm_kit.repository.compose import repository_files
    from trtllm_kit.serve.target_folder import compare, require_unedited

    changes = compare(out, repository_files(made, out), "repository")
    require_unedited(out, changes, force=force)
    for one in ready:
        require_unedited(one.folder, changes_of(one), force=force)
    differ = differences(changes)
    rows = [{"path": change.path, "state": change.state, "diff": list(change.diff)} for change in changes]
    return Besides({"changes": rows}, f"\n{differ}" if differ else "")


def write_targets(ready: Sequence[Ready], besides: Besides, *, force: bool, lock_seconds: float) -> Besides:
    """Write what differs of every target, and say what it was."""
    from trtllm_kit.serve.target_folder import write

    documents, texts, fresh = [], [besides.text], False
    for one in ready:
        written = write(one.folder, one.files, one.facts, force=force, lock_seconds=lock_seconds)
        documents.append(document(one, written.changes))
        texts.append(f"\n{text(one, written.changes)}")
        fresh = fresh or not written.up_to_date
    return Besides(besides.keys | ({"targets": documents} if documents else {}), "".join(texts), fresh)


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


def show_deployment(
    session: Session,
    out: Path,
    deployment: Deployment,
    server: dict[str, Any] | None = None,
    besides: Besides | None = None,
) -> None:
    """Show what was made and the server on it; one that runs on an older repository is named, it keeps what it has."""
    older = serving_older(out, deployment) if server is None else None
    if older is not None:
        session.log(f"warning: process {older} still serves the older {out}; trtkit stop {out}, then start again")
    note = f", while process {older} still serves the older one" if older is not None else ""
    up_to_date = deployment.up_to_date
    show_made(session, out, deployment.manifest, up_to_date=up_to_date, server=server, note=note, besides=besides)


def serving_older(repository: Path, deployment: Deployment) -> int | None:
    """Return the process that serves what the repository held before, if one does."""
    from trtllm_kit.serve.run_record import is_running, read_record

    record = read_record(repository)
    if record is None or record.digest == deployment.manifest.digest:
        return None
    return record.pid if is_running(record) else None


def run_dry(session: Session, engine: Path, made: Plan, out: Path, ready: Sequence[Ready] = ()) -> int:
    """Show every file that would be written, config.pbtxt whole, and how what stands there would change.

    Raises what the run itself would for the engine.
    """
    from trtllm_kit.repository.compose import engine_for, repository_files
    from trtllm_kit.serve.target_folder import compare

    engine_for(made, engine, out)
    files = repository_files(made, out)
    rows = [(name, f"{len(content.encode()):,} bytes") for name, content in files.items()]
    shown = [content for name, content in files.items() if name.endswith("config.pbtxt")]
    differ = differences(compare(out, files, "repository"))
    changes = [(one, changes_of(one)) for one in ready]
    told = [text(one, found) for one, found in changes]
    lines = [table(("file", "size"), rows), *shown, *([differ] if differ else []), *told, "nothing was written"]
    found = {"files": files} | ({"targets": [document(one, rows) for one, rows in changes]} if ready else {})
    session.result(found, lambda: "\n".join(lines))
    return 0


def run_background(
    session: Session,
    made: Plan,
    repository: Path,
    deployment: Deployment,
    *,
    restart: bool,
    lock_seconds: float,
    besides: Besides | None = None,
) -> int:
    """See to it that a server runs on the repository, and leave it running."""
    from trtllm_kit.serve.background import Wanted, keep_running

    wanted = Wanted(repository, made.serve, made.variables)
    kept = keep_running(wanted, session.progress(), restart=restart, lock_seconds=lock_seconds)
    server = {"pid": kept.pid, "started": kept.started, "urls": kept.urls.model_dump()}
    if kept.replaced is not None:
        server["replaced"] = kept.replaced
    show_deployment(session, repository, deployment, server, besides)
    if not kept.started:
        session.log(f"process {kept.pid} serves it already")
        return 0
    _say_ready(session, kept.urls)
    session.log(f"running in the background as process {kept.pid}; trtkit stop {repository} ends it")
    return 0


def run_foreground(
    session: Session,
    made: Plan,
    repository: Path,
    deployment: Deployment,
    *,
    lock_seconds: float,
    besides: Besides | None = None,
) -> int:
    """Start the server, wait until it is ready, and stay with it."""
    with start_server(session, made, repository, lock_seconds=lock_seconds) as server:
        urls = {"http": server.urls.http, "grpc": server.urls.grpc, "metrics": server.urls.metrics}
        show_deployment(session, repository, deployment, {"pid": server.pid, "started": True, "urls": urls}, besides)
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
