"""``trtkit stop``: end a server that was left running in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trtllm_kit.cli.options import LockWaitOption
from trtllm_kit.cli.session import Session
from trtllm_kit.staging import LOCK_SECONDS


def stop(
    context: typer.Context,
    repository: Annotated[Path, typer.Argument(metavar="REPOSITORY", help="The repository it was started on.")],
    *,
    lock_wait: LockWaitOption = LOCK_SECONDS,
) -> int:
    """Stop the background server of REPOSITORY: running requests finish, nothing is left behind."""
    from trtllm_kit.artifact import read_manifest
    from trtllm_kit.serve.process import stop_background
    from trtllm_kit.serve.run_record import read_record

    session: Session = context.obj
    if read_record(repository) is None:
        read_manifest(repository, "repository")  # a mistyped path must not read as "nothing runs"
    pid = stop_background(repository, session.progress(), lock_seconds=lock_wait)
    session.result({"stopped": pid}, lambda: f"stopped process {pid}" if pid else "no server was running")
    return 0
