"""Tells a command or a web address that a verdict changed. What goes wrong there changes no verdict."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources.http_get import get


class Untold(NamedTuple):
    """Somebody who was to be told and was not."""

    what: str
    """Names the program or the host alone: words and paths after it may be secrets."""
    why: str
    hint: str


def tell(command: str | None, url: str | None, document: Mapping[str, Any], timeout_seconds: float) -> list[Untold]:
    """Hand the JSON to a command's standard input, and post it to an address; returns what failed, and why.

    The command is split as a shell splits it and run without one; its output is not looked at.
    """
    text = json.dumps(document)
    failures = [_run(command, text, timeout_seconds) if command else None, _post(url, text, timeout_seconds)]
    return [failure for failure in failures if failure is not None]


def _run(command: str, text: str, timeout_seconds: float) -> Untold | None:
    try:
        words = shlex.split(command)
    except ValueError as error:  # the command is not shown, for it may hold a secret
        why = f"it cannot be split into words: {str(error).lower()}"
        return Untold("the command of --exec was not run", why, "close its quotation marks, or put it in a script")
    program = words[0] if words else ""
    what = f"the command {program} of --exec was not told of the change"
    hint = f"run {program or 'it'} by hand as the user of the check, with the output of --json"
    try:
        ran = subprocess.run(  # the operator's own command
            words, input=text, text=True, stdout=subprocess.DEVNULL, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Untold(what, f"it did not end within {timeout_seconds:g} s and was killed", "--timeout 30")
    except (OSError, IndexError) as error:
        return Untold(what, getattr(error, "strerror", None) or "it is empty", hint)
    return Untold(what, f"it ended with {ran.returncode}", hint) if ran.returncode else None


def _post(url: str | None, text: str, timeout_seconds: float) -> Untold | None:
    if not url:
        return None
    answer = get(url, timeout_seconds, post=text.encode())
    if answer.outcome is Outcome.OK or 200 <= (answer.status or 0) < 300:
        return None
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    what = f"the webhook at {host or 'no host'} was not told of the change"
    return Untold(what, answer.reason, "curl --data '{}' with the same address")
