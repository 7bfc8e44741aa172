"""Where checks leave what the next one will want to know: one small file a target, replaced whole.

Two checks at once each read a whole file and each leave one; the later stands. A file that is there and holds no memory
is told, once, for it is written anew. Where nothing can be written, every check is a first one, and says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from _thread import get_ident
from collections.abc import Mapping
from dataclasses import replace

from trtllm_kit.health.memory import NOTHING, Memory, as_document, read_memory
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.verdict import Finding, Kind, State

STATE_VARIABLE = "TRTKIT_STATE"
MEMORY = "memory"
MOST_BYTES = 4 << 20
MOST_QUESTIONS = 512
"""Compiled questions that are kept; each is some 10 KiB."""
KEPT_SECONDS = 30 * 86_400.0
"""How long what no check has used is kept."""
_UNTOLD = "not told"
"""Stands for what was told when nobody could be: no verdict reads like it, so the next one is told."""


def state_folder(environment: Mapping[str, str]) -> str:
    """Return the folder of the state files: of ``TRTKIT_STATE``, of the XDG directories, else in the home folder."""
    named = environment.get(STATE_VARIABLE)
    if named:
        return named
    base = environment.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")  # noqa: PTH111, PTH118  # pathlib: 4 ms
    return os.path.join(base, "trtkit", "health")  # noqa: PTH118


def state_path(folder: str, target: Target) -> str:
    """Return the state file of a target; it holds no address, which may have a secret in it."""
    digest = hashlib.sha256(f"{target.name}\n{target.url}".encode()).hexdigest()
    return os.path.join(folder, f"{digest[:24]}.json")  # noqa: PTH118


def recall(path: str) -> tuple[Memory, Finding | None]:
    """Read a state file; a finding tells of one that is there and holds no memory."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(MOST_BYTES + 1)
        memory = read_memory(json.loads(data)) if len(data) <= MOST_BYTES else None
    except OSError:  # there is none, or none that can be read: writing it will tell
        return NOTHING, None
    except (ValueError, RecursionError) as error:
        return NOTHING, _forgotten(path, str(error))
    return (memory, None) if memory is not None else (NOTHING, _forgotten(path, "it holds something else"))


def _forgotten(path: str, why: str) -> Finding:
    message = f"what earlier checks left in {path} cannot be read: {why}"
    advice = "nothing to do: it is written anew; when it comes back, look at the disk"
    return Finding(MEMORY, "", State.UNKNOWN, Kind.FORGOTTEN, message, path, advice)


def keep(path: str, memory: Memory) -> str:
    """Replace a state file whole; return why that was not possible, or an empty text."""
    partial = f"{path}.{os.getpid()}.{get_ident()}.partial"
    text = json.dumps(as_document(memory), separators=(",", ":"))  # six times as fast as piece by piece
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        os.replace(partial, path)  # noqa: PTH105
    except OSError as error:
        remove(partial)
        return f"{path}: {error.strerror or error}"
    return ""


def keep_untold(path: str) -> None:
    """Leave for the next check that nobody could be told of this one; where nothing can be written, it tells anyway."""
    memory, _ = recall(path)
    keep(path, replace(memory, told=_UNTOLD))


def tidy(folder: str) -> None:
    """Remove what no check has used for a month, and the questions least lately used beyond ``MOST_QUESTIONS``.

    Only files of the names that checks give are touched; what cannot be removed stays.
    """
    import re

    ours = re.compile(r"(question-)?[0-9a-f]{24}\.json(\.[0-9.]+\.partial)?")
    try:
        with os.scandir(folder) as entries:
            used = [(one.stat().st_mtime, one.path) for one in entries if ours.fullmatch(one.name)]
    except OSError:
        return
    before = time.time() - KEPT_SECONDS
    questions = sorted((when, path) for when, path in used if os.path.basename(path).startswith("question-"))  # noqa: PTH119
    for path in {path for when, path in used if when < before} | {path for _, path in questions[:-MOST_QUESTIONS]}:
        remove(path)


def remove(path: str) -> None:
    """Remove a file if it is there and that is allowed."""
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return
