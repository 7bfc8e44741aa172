"""Runs that nobody attends, as cron starts them: silent unless something changed or failed, with a log of their own."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit import __version__
from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES, LogFile
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError


@dataclass(frozen=True)
class Logging:
    """Where a run writes its log, as the options say."""

    path: Path | None = None
    limit_bytes: int = LOG_BYTES
    keep: int = LOG_FILES


def begin(session: Session, logging: Logging, *, unattended: bool, dry_run: bool) -> Session:
    """Let a run speak as its options say, before it does anything else; returns the session.

    Raises ``UsageError`` for a dry run that nobody would see, ``StorageError`` for a log that cannot be written.
    """
    if unattended and dry_run:
        raise UsageError(
            "--unattended with --dry-run", why="the one is silent, the other only shows", hint="leave one of them out"
        )
    outlet = session.outlet
    outlet.unattended = unattended
    if logging.path is not None:
        log = LogFile(logging.path, outlet.run, limit_bytes=logging.limit_bytes, keep=logging.keep)
        log.begin(f"trtkit {__version__}, process {os.getpid()}: {shlex.join(sys.argv[1:])}")
        outlet.log = log
    return session
