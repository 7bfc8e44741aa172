"""Tells a command or a web address that a verdict changed. What goes wrong there changes no verdict."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources.http_get import get


def tell(command: str | None, url: str | None, document: Mapping[str, Any], timeout_seconds: float) -> str:
    """Hand the JSON to a command's standard input, and post it to an address; returns what failed, or an empty text.

    The command is split as a shell splits it and run without one; its output is not looked at.
    """
    text = json.dumps(document)
    failures = []
    if command:
        failures.append(_run(shlex.split(command), text, timeout_seconds))
    if url:
        answer = get(url, timeout_seconds, post=text.encode())
        delivered = answer.outcome is Outcome.OK or 200 <= (answer.status or 0) < 300
        failures.append("" if delivered else f"{url}: {answer.reason}")
    return "; ".join(failure for failure in failures if failure)


def _run(words: list[str], text: str, timeout_seconds: float) -> str:
    try:
        ran = subprocess.run(  # the operator's own command
            words, input=text, text=True, stdout=subprocess.DEVNULL, timeout=timeout_seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired, IndexError) as error:
        return f"{shlex.join(words)}: {error}"
    return f"{shlex.join(words)} ended with {ran.returncode}" if ran.returncode else ""
