"""The pods of a cluster, as kubectl prints them."""

from __future__ import annotations

import subprocess

from trtllm_kit.errors import UsageError

_SECONDS = 10


def pods_json(labels: str, program: str = "kubectl") -> str:
    """Return ``kubectl get pods -o json`` for a label selector; raises ``UsageError`` with what kubectl says."""
    words = [program, "get", "pods", "-l", labels, "-o", "json", f"--request-timeout={_SECONDS}s"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS + 5)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(labels, str(error)) from None
    if ran.returncode:
        raise _failed(
            labels, ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"it ended with {ran.returncode}"
        )
    return ran.stdout


def _failed(labels: str, why: str) -> UsageError:
    return UsageError(
        f"the pods with the labels {labels} are not known", why=f"kubectl: {why}", hint="kubectl get pods --show-labels"
    )
