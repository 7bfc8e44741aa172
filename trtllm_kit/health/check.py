"""The whole check: read a server a few times, judge what was read."""

from __future__ import annotations

import time
from dataclasses import replace

from trtllm_kit.errors import UsageError
from trtllm_kit.health.builtin import is_frozen
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Snapshot, Target
from trtllm_kit.health.sources.process import is_running
from trtllm_kit.health.sources.prometheus_text import scrape
from trtllm_kit.health.verdict import Verdict

INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 4.0
"""Two samples that use it up, and the interval, stay below the ten seconds a Nagios plugin has."""
PATIENCE_SECONDS = 3.0
"""How long an engine or a heartbeat that stands still is watched on: one step may hold a long prompt, and a busy
machine may let a thread wait."""
_HOUR = 3600.0


def check(
    target: Target,
    ruleset: Ruleset,
    *,
    samples: int | None = None,
    interval_seconds: float = INTERVAL_SECONDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Verdict:
    """Read the target ``samples`` times (by default as often as the rules need) and judge it.

    ``timeout_seconds`` bounds one reading. Raises ``UsageError`` for numbers that make no check.
    """
    wanted = ruleset.samples_needed if samples is None else samples
    if wanted < 1 or not 0 <= interval_seconds <= _HOUR or not 0 < timeout_seconds <= _HOUR:
        raise UsageError(
            f"cannot take {wanted} samples every {interval_seconds} s with a time-out of {timeout_seconds} s",
            why="samples are 1 or more, the interval is 0 s to an hour, the time-out is above 0 s up to an hour",
            hint="--samples 2 --interval 1 --timeout 4",
        )
    return evaluate(target, take_samples(target, wanted, interval_seconds, timeout_seconds), ruleset)


def take_samples(target: Target, wanted: int, interval_seconds: float, timeout_seconds: float) -> tuple[Snapshot, ...]:
    """Read the target at an even pace, oldest first.

    A failed reading ends it, for it is the verdict. A busy engine or a heartbeat that seems frozen is read some more,
    so that one long step is not taken for a hang, nor a short interval for a death.
    """
    taken = [_take(target, timeout_seconds)]
    patient_until = taken[0].monotonic_seconds + wanted * interval_seconds + PATIENCE_SECONDS
    while taken[-1].ok and (len(taken) < wanted or (is_frozen(taken) and time.monotonic() < patient_until)):
        pause = interval_seconds if len(taken) < wanted else max(interval_seconds, 0.25)
        time.sleep(max(0.0, taken[-1].monotonic_seconds + pause - time.monotonic()))
        taken.append(_take(target, timeout_seconds))
    return tuple(taken)


def _take(target: Target, timeout_seconds: float) -> Snapshot:
    snapshot = scrape(target.url, timeout_seconds)
    if target.pid is None or snapshot.ok:
        return snapshot
    return replace(snapshot, process_running=is_running(target.pid))
