"""What one check leaves for the next: counters to compare with, runs of samples outside, what is usual. Pure.

It is read as whatever a file may hold: anything but a memory of this form is none at all. Times are wall clock, for
checks are separate processes; after a step of the clock, or a long silence, only what does not depend on time is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from trtllm_kit.health.changes import CHANGES, Tallies, Tally
from trtllm_kit.health.families import ELSEWHERE, GENERAL, REQUESTS
from trtllm_kit.health.requests import FAILURES, SUCCESSES, fallen
from trtllm_kit.health.snapshot import Labels, Outcome, Series, Snapshot
from trtllm_kit.health.verdict import Finding, Kind
from trtllm_kit.light import dataclass

VERSION = 1
RECENT_SECONDS = 900.0
"""Longer ago than this a sample is not the one before."""
CLOCK_SLACK_SECONDS = 2.0
MOST_MOMENTS = 24
DAY_WINDOWS = 288
"""Windows of five minutes in a day: how slowly what is usual changes."""
USUAL_AFTER = 10
"""Windows after which there is something usual."""
PULSE = frozenset(
    {GENERAL, REQUESTS, SUCCESSES, FAILURES}
    | {name for kinds in ELSEWHERE.values() for names in kinds.values() for name in names}
)
"""Families that tell whether a server lives and moves, and what a page that is drained shows once."""
Key = tuple[str, str]
"""A rule or metric, and its subject."""


@dataclass(frozen=True)
class Run:
    """What became of one rule and subject."""

    outside: int
    """Consecutive samples outside up to the newest."""
    fired: bool


@dataclass(frozen=True)
class Moment:
    """Tallies of one moment, by metric."""

    wall_seconds: float
    tallies: Mapping[str, Tallies]


@dataclass(frozen=True)
class Usual:
    """Mean of a metric over about a day."""

    windows: int
    mean: float


@dataclass(frozen=True)
class Memory:
    """What earlier checks of one target left."""

    wall_seconds: float = 0.0
    """When the newest sample was taken; 0 when there was none."""
    runs: Mapping[Key, Run] = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    """Oldest first."""
    usual: Mapping[Key, Usual] = field(default_factory=dict)
    seen: frozenset[Key] = frozenset()
    """Metrics that were there, by subject."""
    pulse: Series = field(default_factory=dict)
    pulse_wall_seconds: float = 0.0
    logs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Inode and size of each log as far as it was read."""
    canary: tuple[str, float] = ("", 0.0)
    """Digest of the URL of the last generation that went well, and when that was, seconds since 1970."""
    told: str = ""
    """What was last told to a hook: state and findings."""


NOTHING = Memory()


def recalled(memory: Memory, now_wall: float) -> Memory:
    """Return what of a memory still holds: after a long silence or a step of the clock, not what depends on time."""
    age = now_wall - memory.wall_seconds
    if -CLOCK_SLACK_SECONDS <= age <= RECENT_SECONDS:
        return memory
    if age < 0:
        return Memory(runs=memory.runs, usual=memory.usual, seen=memory.seen, logs=memory.logs, told=memory.told)
    runs = {key: Run(0, run.fired) for key, run in memory.runs.items()}
    return replace(memory, wall_seconds=0.0, runs=runs, pulse={}, pulse_wall_seconds=0.0)


def pulse_of(memory: Memory) -> Snapshot | None:
    """Return the pulse of the check before as a sample of its own; None when there is none."""
    if not memory.pulse:
        return None
    return Snapshot(Outcome.OK, "", memory.pulse_wall_seconds, 0.0, 0.0, series=memory.pulse)


def last_pulse(memory: Memory, first: Snapshot) -> Snapshot | None:
    """Return the pulse of the check before as a sample that precedes ``first``; None across a restart.

    It is made once for both, because it holds what was read from it.
    """
    if not memory.pulse or not first.ok:
        return None
    held: dict[Any, Any] = first.__dict__.setdefault("_held", {})
    if held.get(last_pulse, _NOBODY)[0] is not memory:
        held[last_pulse] = memory, _pulse_before(memory, first)
    pulse: Snapshot | None = held[last_pulse][1]
    return pulse


_NOBODY = (None, None)


def _pulse_before(memory: Memory, first: Snapshot) -> Snapshot | None:
    age = first.wall_seconds - memory.pulse_wall_seconds
    if age <= 0:
        return None
    then = first.monotonic_seconds - age
    earlier = Snapshot(Outcome.OK, "", memory.pulse_wall_seconds, then, 0.0, series=memory.pulse)
    return None if next(fallen(earlier, first), None) else earlier


_NO_NUMBER = frozenset((Kind.MISSING, Kind.NOT_A_NUMBER, Kind.STALE, Kind.CONTRADICTING))
"""Kinds of findings that tell nothing of whether what fired has ended."""


def remember(
    memory: Memory, newest: Snapshot, findings: Sequence[Finding], metrics: frozenset[str], seen: frozenset[Key]
) -> Memory:
    """Return what the next check will want to know; ``metrics`` are those of two moments that rules name.

    While an engine stands still its pulse is kept from when it was first seen to, so that the time adds up.
    """
    unread = {(one.rule, one.subject) for one in findings if one.kind in _NO_NUMBER}
    runs = {key: Run(0, fired=True) for key, run in memory.runs.items() if run.fired and key in unread}
    runs |= {(one.rule, one.subject): Run(one.run, one.fired) for one in findings if one.run or one.fired}
    moment = Moment(newest.wall_seconds, {name: CHANGES[name].count(newest) for name in sorted(metrics)})
    stalled = any(one.rule == "engine-progress" and one.kind is Kind.STALE for one in findings)
    keep = stalled and memory.pulse_wall_seconds > 0
    pulse = {name: newest.series[name] for name in PULSE if name in newest.series}
    return replace(
        memory,
        wall_seconds=newest.wall_seconds,
        runs=runs,
        moments=thinned((*memory.moments, moment)),
        seen=memory.seen | seen,
        pulse=memory.pulse if keep else pulse,
        pulse_wall_seconds=memory.pulse_wall_seconds if keep else newest.wall_seconds,
    )


def grown_usual(usual: Usual | None, value: float) -> Usual:
    """Let a window's value become part of what is usual, at the weight of one window of a day."""
    if usual is None:
        return Usual(1, value)
    windows = min(usual.windows + 1, DAY_WINDOWS)
    return Usual(windows, usual.mean + (value - usual.mean) / windows)


def thinned(moments: tuple[Moment, ...], span_seconds: float = 2 * RECENT_SECONDS) -> tuple[Moment, ...]:
    """Keep a bounded number of moments, evenly over the span, and the newest."""
    newest = moments[-1]
    step = span_seconds / (MOST_MOMENTS - 2)
    kept: list[Moment] = []
    for moment in moments[:-1]:
        recent = 0 < newest.wall_seconds - moment.wall_seconds <= span_seconds
        if recent and (not kept or moment.wall_seconds - kept[-1].wall_seconds >= step):
            kept.append(moment)
    return (*kept[-(MOST_MOMENTS - 1) :], newest)


def as_document(memory: Memory) -> dict[str, Any]:
    """Return a memory as JSON values."""
    return {
        "version": VERSION,
        "wall_seconds": memory.wall_seconds,
        "runs": [[*key, run.outside, run.fired] for key, run in memory.runs.items()],
        "moments": [[moment.wall_seconds, moment.tallies] for moment in memory.moments],
        "usual": [[*key, usual.windows, usual.mean] for key, usual in memory.usual.items()],
        "seen": sorted(memory.seen),
        "pulse": {name: list(series.items()) for name, series in memory.pulse.items()},
        "pulse_wall_seconds": memory.pulse_wall_seconds,
        "logs": memory.logs,
        "canary": memory.canary,
        "told": memory.told,
    }


def read_memory(document: Any) -> Memory | None:
    """Return the memory that a document holds; None for anything else."""
    try:
        if document["version"] != VERSION:
            return None
        return Memory(
            wall_seconds=_seconds(document["wall_seconds"]),
            runs={_key(*key): Run(_count(run), fired is True) for *key, run, fired in document["runs"]},
            moments=tuple(Moment(_seconds(wall), _tallies(tallies)) for wall, tallies in document["moments"]),
            usual={_key(*key): Usual(_count(n), _seconds(mean)) for *key, n, mean in document["usual"]},
            seen=frozenset(_key(*key) for key in document["seen"]),
            pulse={str(name): _series(one) for name, one in document["pulse"].items()},
            pulse_wall_seconds=_seconds(document["pulse_wall_seconds"]),
            logs={str(path): (_count(inode), _count(size)) for path, (inode, size) in document["logs"].items()},
            canary=_canary(*document.get("canary", ("", 0.0))),
            told=str(document["told"]),
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


def _canary(url: Any, wall_seconds: Any) -> tuple[str, float]:
    return str(url), _seconds(wall_seconds)


def _key(name: Any = None, subject: Any = None) -> Key:
    if not isinstance(name, str) or not isinstance(subject, str):
        raise TypeError
    return name, subject


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _seconds(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError
    return number


def _tallies(document: Any) -> dict[str, Tallies]:
    def tally(numbers: Any) -> Tally:
        return tuple(float(number) for number in numbers)

    return {
        str(name): {str(subject): tally(numbers) for subject, numbers in one.items()}
        for name, one in document.items()
        if name in CHANGES
    }


def _series(document: Any) -> dict[Labels, float]:
    return {_labels(labels): float(value) for labels, value in document}


def _labels(pairs: Any) -> Labels:
    return tuple((str(name), str(value)) for name, value in pairs)
