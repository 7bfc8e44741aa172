"""The whole check: read a server a few times, judge what was read, with what earlier checks left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from trtllm_kit.errors import UsageError
from trtllm_kit.health.builtin import is_frozen, is_unclear
from trtllm_kit.health.evaluate import evaluate, next_memory, with_pulse
from trtllm_kit.health.memory import NOTHING, Memory, last_pulse, pulse_of, recalled
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Snapshot, Target
from trtllm_kit.health.sources.gather import found_beside, gather, gather_range
from trtllm_kit.health.state_file import MEMORY, keep, recall
from trtllm_kit.health.verdict import Finding, Skipped, Verdict
from trtllm_kit.light import dataclass

INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 4.0
"""Two samples that use it up, and the interval, stay below the ten seconds a Nagios plugin has."""
PATIENCE_SECONDS = 3.0
"""How long an engine or a heartbeat that stands still is watched on: one step may hold a long prompt, and a busy
machine may let a thread wait."""
_LEAST_PAUSE_SECONDS = 0.25
"""Between readings of what seems frozen."""
_HOUR = 3600.0


@dataclass(frozen=True)
class Pace:
    """How often and how fast a server is read."""

    samples: int | None = None
    """None: as often as the rules need; once where an earlier check is remembered."""
    interval_seconds: float = INTERVAL_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS
    """Of one reading."""

    def checked(self) -> Pace:
        """Return it; raises ``UsageError`` for numbers that make no check."""
        wanted = 1 if self.samples is None else self.samples
        if wanted < 1 or not 0 <= self.interval_seconds <= _HOUR or not 0 < self.timeout_seconds <= _HOUR:
            numbers = f"every {self.interval_seconds} s with a time-out of {self.timeout_seconds} s"
            raise UsageError(
                f"cannot take {wanted} samples {numbers}",
                why="samples are 1 or more, the interval is 0 s to an hour, the time-out is above 0 s up to an hour",
                hint="--samples 2 --interval 1 --timeout 4",
            )
        return self


def check(
    target: Target,
    ruleset: Ruleset,
    *,
    samples: int | None = None,
    interval_seconds: float = INTERVAL_SECONDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Verdict:
    """Read the target ``samples`` times (by default as often as the rules need) and judge it; nothing is remembered.

    ``timeout_seconds`` bounds one reading. Raises ``UsageError`` for numbers that make no check.
    """
    pace = Pace(samples, interval_seconds, timeout_seconds).checked()
    return looked_at(target, ruleset, pace, NOTHING)[0]


def check_remembering(target: Target, ruleset: Ruleset, pace: Pace, path: str) -> tuple[Verdict, bool]:
    """Check a target with what the check before left in a state file, and leave what the next one will want.

    Returns the verdict, and whether it is another than the one before; a first one that is OK is not.
    """
    memory, lost = recall(path)
    verdict, after = looked_at(target, ruleset, pace, memory)
    return left(path, memory, lost, verdict, after)


def left(path: str, memory: Memory, lost: Finding | None, verdict: Verdict, after: Memory) -> tuple[Verdict, bool]:
    """Leave ``after`` for the next check where ``memory`` was read and something ``lost``; as ``check_remembering``."""
    told = _signature(verdict)
    changed = told != memory.told and (bool(memory.told) or verdict.state.severity > 0)
    failed = keep(path, replace(after, told=told))
    if lost is not None:
        findings = tuple(sorted((*verdict.findings, lost), key=lambda finding: finding.order))
        worse = lost.state.severity > verdict.state.severity
        verdict = replace(verdict, findings=findings, state=lost.state if worse else verdict.state)
    if failed:
        note = Skipped(MEMORY, f"every check is a first one, for its state cannot be written: {failed}")
        verdict = replace(verdict, not_judged=(*verdict.not_judged, note))
    return verdict, changed


def _signature(verdict: Verdict) -> str:
    """Name the state and what led to it, without the numbers, which differ each time."""
    wrong = [f"{finding.title} {finding.state}" for finding in verdict.findings if finding.state.severity]
    return "; ".join([verdict.state, *wrong])


def looked_at(target: Target, ruleset: Ruleset, pace: Pace, memory: Memory) -> tuple[Verdict, Memory]:
    """Check a target with a memory; returns the verdict and what is to be remembered."""
    known = recalled(memory, time.time())
    if target.via:
        known = replace(known, moments=(), pulse={}, pulse_wall_seconds=0.0)  # Prometheus remembers better
        samples = gather_range(target, pace.timeout_seconds)
    else:
        first = gather(target, pace.timeout_seconds, pulse_of(known))
        samples = take_samples(target, ruleset, pace, first, known)
    return concluded(target, samples, ruleset, known)


def concluded(target: Target, samples: Sequence[Snapshot], ruleset: Ruleset, known: Memory) -> tuple[Verdict, Memory]:
    """Judge samples, with what is no number; returns the verdict and what is to be remembered."""
    known, findings = found_beside(target, known)
    verdict = evaluate(target, samples, ruleset, known, findings)
    return verdict, next_memory(known, samples, ruleset, verdict)


def take_samples(
    target: Target, ruleset: Ruleset, pace: Pace, first: Snapshot, memory: Memory = NOTHING
) -> tuple[Snapshot, ...]:
    """Read the target at an even pace, oldest first, until that is enough."""
    taken = [first]
    while (at := next_reading(taken, ruleset, pace, memory)) is not None:
        time.sleep(max(0.0, at - time.monotonic()))
        taken.append(gather(target, pace.timeout_seconds, taken[-1]))
    return tuple(taken)


def next_reading(taken: Sequence[Snapshot], ruleset: Ruleset, pace: Pace, memory: Memory) -> float | None:
    """Return when to read once more, seconds of the monotonic clock; None when it is enough.

    One reading may do where the check before is remembered. A failed reading ends it, for it is the verdict. A busy
    engine or a heartbeat that seems frozen is read some more, so that one long step is not taken for a hang, nor a
    short interval for a death.
    """
    newest = taken[-1]
    if not newest.ok:
        return None
    once = pace.samples is None and last_pulse(memory, taken[0]) is not None
    wanted = 1 if once else pace.samples or ruleset.samples_needed
    if len(taken) < wanted:
        return newest.monotonic_seconds + pace.interval_seconds
    patient_until = taken[0].monotonic_seconds + wanted * pace.interval_seconds + PATIENCE_SECONDS
    if time.monotonic() >= patient_until or not _wants_more(taken, memory, once=once):
        return None
    return newest.monotonic_seconds + max(pace.interval_seconds, _LEAST_PAUSE_SECONDS)


def _wants_more(taken: Sequence[Snapshot], memory: Memory, *, once: bool) -> bool:
    watched = with_pulse(taken, memory)
    return is_unclear(watched) if once and len(taken) == 1 else is_frozen(watched)
