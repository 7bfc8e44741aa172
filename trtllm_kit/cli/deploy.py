"""``trtkit deploy``: make the model repository from an engine, and start the server that reads it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.convert import made_text
from trtllm_kit.cli.options import DryRunOption, OutOption, ProfileOption
from trtllm_kit.cli.replan import replan
from trtllm_kit.cli.session import Session, table
from trtllm_kit.errors import UsageError

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.repository.compose import Deployment
    from trtllm_kit.serve.process import Server

EngineArgument = Annotated[Path, typer.Argument(metavar="ENGINE", help="Folder that trtkit build made.")]


def deploy(
    context: typer.Context,
    engine: EngineArgument,
    profile: ProfileOption,
    out: OutOption,
    *,
    start: Annotated[bool, typer.Option("--start", help="Start tritonserver on it; Ctrl-C stops it cleanly.")] = False,
    background: Annotated[
        bool, typer.Option("--background", help="With --start: leave the server running; trtkit stop ends it.")
    ] = False,
    dry_run: DryRunOption = False,
) -> int:
    """Write the Triton model repository of a profile for ENGINE; with --start serve it."""
    if background and not start:
        raise UsageError("--background without --start", why="there is nothing to leave running", hint="add --start")
    session: Session = context.obj
    made = replan(engine, profile)
    if dry_run:
        return run_dry(session, made)
    deployment = write_repository(session, engine, made, out)
    if not start:
        show_deployment(session, out, deployment)
        return 0
    return run_start(session, made, out, deployment, background=background)


def write_repository(session: Session, engine: Path, made: Plan, out: Path) -> Deployment:
    """Write the repository; a server that runs on an older one is named, since it keeps what it has loaded."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.repository.compose import deploy as compose

    deployment = compose(engine, made, out)
    if deployment.up_to_date:
        return deployment
    append_log(out, {"verb": "deploy", "digest": deployment.manifest.digest})
    pid = running_on(out)
    if pid is not None:
        session.log(f"warning: process {pid} still serves the older {out}; trtkit stop {out}, then start again")
    return deployment


def show_deployment(
    session: Session, out: Path, deployment: Deployment, server: dict[str, object] | None = None
) -> None:
    """Show what was made, and the server that was started on it."""
    manifest = deployment.manifest
    document = {"out": str(out), "up_to_date": deployment.up_to_date, "manifest": manifest.model_dump(mode="json")}
    if server is not None:
        document["server"] = server
    session.result(document, lambda: made_text(out, manifest, up_to_date=deployment.up_to_date))


def run_dry(session: Session, made: Plan) -> int:
    """Show every file that would be written, and config.pbtxt whole."""
    from trtllm_kit.repository.compose import repository_files

    files = repository_files(made)
    rows = [(name, f"{len(text.encode()):,} bytes") for name, text in files.items()]
    shown = [text for name, text in files.items() if name.endswith("config.pbtxt")]
    session.result({"files": files}, lambda: "\n".join([table(("file", "size"), rows), *shown, "nothing was written"]))
    return 0


def run_start(session: Session, made: Plan, repository: Path, deployment: Deployment, *, background: bool) -> int:
    """Start the server, wait until it is ready, and stay with it or leave it running."""
    pid = running_on(repository)
    if background and deployment.up_to_date and pid is not None:
        show_deployment(session, repository, deployment, {"pid": pid, "started": False})
        session.log(f"process {pid} serves it already")
        return 0
    server = start_server(session, made, repository)
    with server.keep() if background else server:
        urls = {"http": server.urls.http, "grpc": server.urls.grpc, "metrics": server.urls.metrics}
        show_deployment(session, repository, deployment, {"pid": server.pid, "started": True, "urls": urls})
        session.log(f"ready: {server.urls.http} (HTTP), {server.urls.grpc} (gRPC), {server.urls.metrics} (metrics)")
        if background:
            session.log(f"running in the background as process {server.pid}; trtkit stop {repository} ends it")
            return 0
        session.log("Ctrl-C stops the server")
        return _stay(session, server)


def running_on(repository: Path) -> int | None:
    """Return the process that serves a repository, if one does."""
    from trtllm_kit.serve.run_record import is_running, read_record

    record = read_record(repository)
    return record.pid if record is not None and is_running(record) else None


def start_server(session: Session, made: Plan, repository: Path) -> Server:
    """Start tritonserver on a repository and wait until it is ready; it is stopped again when it is not."""
    from trtllm_kit.serve.process import start

    return start(repository, made.serve, made.environment, session.progress())


def _stay(session: Session, server: Server) -> int:
    try:
        while server.running():
            time.sleep(0.2)
    except KeyboardInterrupt:
        session.log("stopping the server")
        return 0
    server.raise_if_exited()
    return 0
