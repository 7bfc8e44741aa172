"""Run the installed command as cron runs a job: no variables, no home, no terminal, no stdin, a tight umask."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cli import Ran, trtkit_path

_NOTHING: Mapping[str, str] = {}


def job(*arguments: str | Path, environment: Mapping[str, str] = _NOTHING) -> list[str]:
    """Return the command line of a job: ``env -i``, a session of its own, umask 077, no stdin, in the root folder."""
    variables = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"} | dict(environment)
    return [
        *("env", "-i", *(f"{name}={value}" for name, value in variables.items()), "setsid", "--wait"),
        *("sh", "-c", 'umask 077; cd /; exec "$@" <&-', "sh", trtkit_path(), *map(str, arguments)),
    ]


def under_cron(*arguments: str | Path, environment: Mapping[str, str] = _NOTHING, timeout: float = 120) -> Ran:
    """Run ``trtkit`` as a job; what it printed is what cron would mail."""
    done = subprocess.run(
        job(*arguments, environment=environment),
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=timeout,
        check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)
