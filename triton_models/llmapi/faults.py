"""Faults that a rehearsal can switch on: what goes wrong in real servers, on purpose and at a known moment.

The variable ``TRTKIT_FAULTS`` names a JSON file, e.g. ``{"stall": true}``. It is read again when it changes, so a
drill switches faults on and off while the server runs. Without the variable nothing is ever read.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ask import STOPPED, Refused
from runtime import Performance, Statistics

VARIABLE = "TRTKIT_FAULTS"
KINDS: Mapping[str, type] = {
    "stall": bool, "dead_rank": bool, "kv_exhaustion": float, "slow_start": float, "nan_acceptance": bool,
    "lost_metrics": bool, "exit_after_tokens": int,
}  # fmt: skip
"""Every fault: yes or no; the share of the KV blocks that is taken, 0 to 1; seconds that loading lasts longer; tokens
after which the process ends, in the middle of whatever stream it is in."""
_MOST: Mapping[str, float] = {"kv_exhaustion": 1.0, "slow_start": 86_400.0}
"""Largest value of the faults that have one; none is below 0."""
_LOOK_SECONDS = 0.1


class BadFaults(Exception):
    """The file names no fault that there is, or gives it another value than it takes."""


class Faults:
    """The faults that are on."""

    def __init__(self, path: Path | None) -> None:
        """Take the file that switches them; None switches none ever. Raises ``BadFaults``."""
        self._path = path
        self._on: dict[str, Any] = {}
        self._mark: tuple[int, int] | None = None
        self._next_look = 0.0
        self._lock = threading.Lock()
        self._tokens = 0
        self._taken: dict[int, int] = {}
        self._look(first=True)

    def start_slowly(self, wait: Callable[[float], None] = time.sleep) -> None:
        """Wait as long as loading is to last longer."""
        wait(float(self.get("slow_start") or 0.0))

    def get(self, name: str) -> Any:
        """Return the value of a fault; None when it is off."""
        self._look()
        return self._on.get(name)

    def stalled(self) -> bool:
        """Whether the engine takes no step: it hangs, or waits for a rank that has died."""
        return bool(self.get("stall") or self.get("dead_rank"))

    def refuse(self) -> None:
        """Raise ``Refused`` where new requests reach no engine any more."""
        if self.get("dead_rank"):
            raise Refused("the engine has stopped: rank 1 does not answer", STOPPED)

    def seen(self, statistics: Statistics) -> Statistics | None:
        """Return the statistics as the fault lets them be seen."""
        if self.get("lost_metrics") or self.get("dead_rank"):
            return None
        return replace(statistics, accepted_tokens=0) if self.get("nan_acceptance") else statistics

    def spoil(self, performance: Performance) -> None:
        """Give an answer the acceptance that logits without numbers give it: none of its drafts, and no rate."""
        if self.get("nan_acceptance"):
            performance.accepted_draft_tokens, performance.acceptance_rate = 0, math.nan

    def exhaust(self, engine: Any) -> bool:
        """Hold a share of the engine's blocks as if requests had them, or give them back; whether any is held."""
        share = float(self.get("kv_exhaustion") or 0.0)
        for pool in engine._cells.pools:  # a fault is no part of what an engine offers
            held = self._taken.get(id(pool), 0)
            more = min(int(pool.blocks * share) - held, pool.room)
            pool.held += more
            self._taken[id(pool)] = held + more
        return any(self._taken.values())

    def wrote(self, tokens: int) -> None:
        """Count tokens that clients are sent; the process ends without a word when they are as many as it takes."""
        most = self.get("exit_after_tokens")
        if most is None:
            return
        self._tokens += tokens
        if self._tokens >= int(most):
            os._exit(1)

    def _look(self, *, first: bool = False) -> None:
        now = time.monotonic()
        if self._path is None or (now < self._next_look and not first):
            return
        with self._lock:
            self._next_look = now + _LOOK_SECONDS
            try:
                found = self._path.stat()
                mark = (found.st_mtime_ns, found.st_size)
                if mark != self._mark:
                    self._mark = mark  # what cannot be read is told once, and what was on stays on
                    self._on = _read(self._path)
            except FileNotFoundError:
                self._on, self._mark = {}, None
            except BadFaults as error:
                if first:
                    raise
                _warn(f"{error}; the faults stay as they were")


def faults_of(environment: Mapping[str, str]) -> Faults:
    """Return the faults that the environment names a file for; raises ``BadFaults``."""
    name = environment.get(VARIABLE)
    return Faults(Path(name) if name else None)


def _warn(text: str) -> None:
    import triton_python_backend_utils as pb_utils  # only a server has it, and only there a file changes meanwhile

    pb_utils.Logger.log_warn(text)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadFaults(f"{VARIABLE}: {path} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadFaults(f"{VARIABLE}: {path} must hold an object")
    for name, value in document.items():
        if name not in KINDS:
            raise BadFaults(f"{VARIABLE}: {path} has {name!r}; there are {', '.join(KINDS)}")
        wanted = (int, float) if KINDS[name] is float else KINDS[name]
        if not isinstance(value, wanted) or (KINDS[name] is not bool and isinstance(value, bool)):
            raise BadFaults(f"{VARIABLE}: {path}: {name} takes a {KINDS[name].__name__}, got {value!r}")
        if not 0 <= value <= _MOST.get(name, math.inf):
            raise BadFaults(f"{VARIABLE}: {path}: {name} takes 0 to {_MOST.get(name, math.inf):g}, got {value!r}")
    return {name: value for name, value in document.items() if value is not False}
