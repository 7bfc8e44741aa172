"""Known phrases in the logs of a server, in what was written since the check before."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence

from trtllm_kit.health.verdict import Finding, Kind, State

LOG_PHRASES = "log-phrases"
MOST_BYTES = 1 << 20
"""Most that is read of one log at once: the newest; a first look goes no further back either."""
PHRASES: Sequence[tuple[str, State, str]] = (
    ("num_fitting_reqs=0", State.WARNING, "no request fits: raise the KV cache or lower limits.max_seq_len"),
    ("No free slots", State.WARNING, "more sequences than slots: raise limits.max_batch_size, or add a replica"),
    ("KV cache reuse disabled", State.WARNING, "reuse was asked for and is off: the lines around say why"),
    (
        "Chunked context is not supported for this configuration",
        State.WARNING,
        "chunked prefill is off: long prompts hold up every answer; the lines around say why",
    ),
    ("hard-killing all", State.CRITICAL, "the ranks are being killed: restart the server"),
    (
        "not active (might be completed already)",
        State.WARNING,
        "requests are cancelled after their end; a flood of it comes from a client that ends every request twice",
    ),
)
"""What a log of TensorRT-LLM says when something is wrong, how grave it is, and what to do."""
FLOOD = 20
"""Lines of the last phrase from which on it is one."""
_NEEDS_MANY = frozenset(("not active (might be completed already)",))


def read_logs(
    paths: Sequence[str], known: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, tuple[int, int]], list[Finding]]:
    """Look through what is new in each log; returns how far each was read, and what was found.

    A log that was put aside and begun anew is read from its beginning.
    """
    places = dict(known)
    findings: list[Finding] = []
    for path in paths:
        try:
            data, old, places[path] = _new_part(path, known.get(path))
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            advice = "give the log's path, and the right to read it"
            findings.append(Finding(LOG_PHRASES, path, State.UNKNOWN, Kind.MISSING, message, path, advice))
            continue
        findings.extend(_told(path, data, old))
    if not findings:
        message = f"no known phrase in what is new of {len(paths)} logs"
        findings.append(Finding(LOG_PHRASES, "", State.OK, Kind.WITHIN, message))
    return places, findings


def _new_part(path: str, before: tuple[int, int] | None) -> tuple[bytes, int, tuple[int, int]]:
    """Return what is new of a log, behind as much of the old as a phrase may begin in, and how much that is."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # a pipe would keep the check waiting
        raise OSError(errno.EINVAL, "it is no ordinary file")
    with open(path, "rb") as file:  # noqa: PTH123  # pathlib: 4 ms
        found = os.fstat(file.fileno())
        begin = before[1] if before is not None and before[0] == found.st_ino and before[1] <= found.st_size else 0
        begin = max(begin, found.st_size - MOST_BYTES)
        old = min(begin, _LONGEST - 1)
        file.seek(begin - old)
        return file.read(old + MOST_BYTES), old, (found.st_ino, file.tell())


_LONGEST = max(len(phrase) for phrase, _, _ in PHRASES)


def _told(path: str, data: bytes, old: int) -> list[Finding]:
    """Look for each phrase that ends behind the first ``old`` bytes: one that was cut in two is found whole."""
    findings = []
    for phrase, state, advice in PHRASES:
        count = data.count(phrase.encode(), max(0, old - len(phrase) + 1))
        if count >= (FLOOD if phrase in _NEEDS_MANY else 1):
            times = "once" if count == 1 else f"{count} times"
            message = f'the log says {times} "{phrase}"'
            findings.append(Finding(LOG_PHRASES, phrase, state, Kind.TOLD, message, path, advice))
    return findings
