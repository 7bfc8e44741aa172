"""The built-in checks that compare samples: does the model's process live, do requests fail, is it one server.

Frozen gauges look idle or busy, never dead, and a counter tells of a failure without telling when. So none of this
can be seen in one sample, and what is not seen is listed as not judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from trtllm_kit.health.families import GENERAL
from trtllm_kit.health.metrics import MAX_AGE_SECONDS, heartbeat
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.requests import FAILURES, Ended, ended_requests, fallen
from trtllm_kit.health.snapshot import NoReading, Reading, Snapshot, Trouble, once_for_all
from trtllm_kit.health.verdict import LOG, Finding, Kind, Skipped, State

MODEL_HEARTBEAT = "model-heartbeat"
REQUEST_FAILURES = "request-failures"
ONE_SERVER = "one-server"

STANDSTILL_SECONDS = 1.0
"""Shorter than this a heartbeat that moved before may stand still: it beats five times a second."""
DEAD_SECONDS = 2.0
"""A heartbeat that has stood still for this long, ten beats, is dead; a check watches longer than that."""
FEWEST_FAILURES = 2
"""So many requests must have failed before "all of them" means the engine: one may have been a bad request."""
TWO_SAMPLES = "it takes two samples (--samples)"
_DEAD_ADVICE = (
    "the model's process (triton_python_backend_stub) is dead, held or starved; Triton does not start it again: "
    f"read {LOG} and restart the server"
)

Judged = tuple[list[Finding], list[Skipped]]


@once_for_all
def model_heartbeat(samples: Sequence[Snapshot]) -> Judged:
    """Judge whether the process behind every model lives; ``samples`` is not empty and the newest one is good.

    Standing still is CRITICAL, as a refusing server is: Triton answers, and no request is served. Too short a time to
    tell is UNKNOWN. A page without a heartbeat (upstream's backends) is listed as not judged.
    """
    history = [(sample, heartbeat(sample)) for sample in samples if sample.ok]
    ever = {subject for _, beats in history for subject, beat in beats.items() if not _is_missing(beat)}
    if not ever:
        return [], [Skipped(MODEL_HEARTBEAT, "the page has no heartbeat, which trtkit's own model files report")]
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for subject in sorted(ever):
        verdict = _pulse(subject, [(sample, beats.get(subject)) for sample, beats in history])
        if isinstance(verdict, Finding):
            findings.append(verdict)
        else:
            skipped.append(verdict)
    return findings, skipped


def _is_missing(beat: Reading | NoReading) -> bool:
    return isinstance(beat, NoReading) and beat.trouble is Trouble.MISSING


def _pulse(subject: str, history: Sequence[tuple[Snapshot, Reading | NoReading | None]]) -> Finding | Skipped:
    """Judge one model that has a heartbeat in some sample."""
    newest, beat = history[-1]
    if not isinstance(beat, Reading):
        reason = beat.reason if beat is not None else "an earlier sample had it and the newest does not"
        kind = Kind(beat.trouble.value) if beat is not None else Kind.MISSING
        message = f"whether the model's process lives is not known: {reason}"
        return Finding(MODEL_HEARTBEAT, subject, State.UNKNOWN, kind, message, GENERAL, _DEAD_ADVICE)
    beats = [(sample.monotonic_seconds, was.value) for sample, was in history if isinstance(was, Reading)]
    if len(beats) == 1:
        return _one_beat(subject, beat, newest.wall_seconds - beat.value)
    still = newest.monotonic_seconds - _since(beats)
    if any(value != beat.value for _, value in beats) and still < STANDSTILL_SECONDS:
        message = f"it beats, watched for {newest.monotonic_seconds - beats[0][0]:.1f} s"
        return Finding(MODEL_HEARTBEAT, subject, State.OK, Kind.WITHIN, message, beat.source)
    dead = still >= DEAD_SECONDS
    message = f"no heartbeat of the model's process for {still:.1f} s"
    message += ": no request is served, and its numbers are stale" if dead else ", too short a time to call it dead"
    state = State.CRITICAL if dead else State.UNKNOWN
    return Finding(MODEL_HEARTBEAT, subject, state, Kind.STALE, message, beat.source, _DEAD_ADVICE)


def _since(beats: Sequence[tuple[float, float]]) -> float:
    """Return the time of the first sample that had the newest value, and so had every sample after it."""
    since, newest = beats[-1]
    for time, value in reversed(beats):
        if value != newest:
            break
        since = time
    return since


def _one_beat(subject: str, beat: Reading, age_seconds: float) -> Finding | Skipped:
    """Judge a lone heartbeat by this machine's clock, which need not be the server's: only when it is very old."""
    if age_seconds <= MAX_AGE_SECONDS:
        return Skipped(MODEL_HEARTBEAT, TWO_SAMPLES)
    message = f"the last heartbeat was {age_seconds:.0f} s ago by this machine's clock"
    advice = "take two samples (--samples): they tell a dead process from a clock that is wrong"
    return Finding(MODEL_HEARTBEAT, subject, State.UNKNOWN, Kind.STALE, message, beat.source, advice)


def request_failures(samples: Sequence[Snapshot]) -> Judged:
    """Judge what became of the requests that ended between the samples; the newest one is good.

    Some failed by the engine's fault: WARNING. All did, and more than one: CRITICAL. Rejected and cancelled requests
    are no fault of the engine. What failed before the first sample may be of last month, and is not judged.
    """
    history = [ended_requests(sample) for sample in samples if sample.ok]
    if not history[-1]:
        return [], [Skipped(REQUEST_FAILURES, f"the page has no {FAILURES}")]
    findings: list[Finding] = []
    skipped: dict[str, Skipped] = {}
    for subject, now in history[-1].items():
        verdict = _outcome(subject, _first(subject, history), now)
        if isinstance(verdict, Finding):
            findings.append(verdict)
        else:
            skipped[verdict.reason] = verdict
    return findings, list(skipped.values())


def _first(subject: str, history: Sequence[Mapping[str, Ended]]) -> Ended | None:
    """Return what the oldest sample with this model shows; None when that is the newest one."""
    return next((ended[subject] for ended in history[:-1] if subject in ended), None)


def _outcome(subject: str, before: Ended | None, now: Ended) -> Finding | Skipped:
    """Judge one model by what it shows now and by what it showed first."""
    if not 0 <= now.failed < math.inf:
        kind = Kind.CONTRADICTING if math.isfinite(now.failed) else Kind.NOT_A_NUMBER
        message = f"how many requests failed is not known: the count is {now.failed}"
        return Finding(REQUEST_FAILURES, subject, State.UNKNOWN, kind, message, FAILURES)
    if before is None:
        return Skipped(REQUEST_FAILURES, TWO_SAMPLES)
    failed, succeeded = now.failed - before.failed, now.succeeded - before.succeeded
    if not failed >= 0:
        return Skipped(REQUEST_FAILURES, f"its counters did not grow (see {ONE_SERVER})")
    if failed == 0:
        message = "no request failed between the samples"
        return Finding(REQUEST_FAILURES, subject, State.OK, Kind.WITHIN, message, FAILURES)
    return _failing(subject, failed, succeeded)


def _failing(subject: str, failed: float, succeeded: float) -> Finding:
    all_of_them = succeeded == 0 and failed >= FEWEST_FAILURES
    others = format_number(succeeded) if math.isfinite(succeeded) else "an unknown number"
    requests = "request" if failed == 1 else "requests"
    message = f"{format_number(failed)} {requests} failed by the engine's fault between the samples, {others} succeeded"
    advice = (
        f"the server answers and the model does not: read {LOG}, then restart the server"
        if all_of_them
        else f"read {LOG} for the reason, and look at what these requests held"
    )
    state = State.CRITICAL if all_of_them else State.WARNING
    return Finding(REQUEST_FAILURES, subject, state, Kind.FAILING, message, FAILURES, advice)


def one_server(samples: Sequence[Snapshot]) -> Judged:
    """Judge whether the good samples can be of one server that ran throughout: then no counter goes back."""
    good = [sample for sample in samples if sample.ok]
    if len(good) < 2:
        return [], [Skipped(ONE_SERVER, TWO_SAMPLES)]
    falls = [fall for earlier, later in pairwise(good) for fall in fallen(earlier, later)]
    if not falls:
        message = f"no counter went back in {len(good)} samples"
        return [Finding(ONE_SERVER, "", State.OK, Kind.WITHIN, message)], []
    name, before, after = falls[0]
    others = f", and {len(falls) - 1} other falls" if len(falls) > 1 else ""
    message = f"{name} fell from {format_number(before)} to {format_number(after)}{others}: not one running server"
    advice = (
        "it restarted or reloaded a model, or two servers stand behind this address: "
        "check again; if it stays, give each server's own address"
    )
    return [Finding(ONE_SERVER, "", State.UNKNOWN, Kind.WENT_BACK, message, name, advice)], []
