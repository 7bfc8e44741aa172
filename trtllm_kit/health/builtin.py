"""The checks that no profile switches off: can the server be read, does its engine move, do its numbers agree."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise

from trtllm_kit.health.families import GENERAL
from trtllm_kit.health.liveness import MODEL_HEARTBEAT, ONE_SERVER, REQUEST_FAILURES, TWO_SAMPLES, model_heartbeat
from trtllm_kit.health.metrics import METRICS, active_requests, engine_steps
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.sanity import dead_counters, undefined_labels
from trtllm_kit.health.snapshot import Measured, NoReading, Outcome, Reading, Snapshot, Target, Trouble, once_for_all
from trtllm_kit.health.verdict import LOG, Finding, Kind, Skipped, State

SCRAPE = "scrape"
SOURCE = "source"
ENGINE_PROGRESS = "engine-progress"
METRIC_SANITY = "metric-sanity"
BUILT_IN = (SCRAPE, MODEL_HEARTBEAT, ENGINE_PROGRESS, REQUEST_FAILURES, ONE_SERVER, METRIC_SANITY)

_ADVICE = {
    Outcome.REFUSED: f"see whether the server's process lives and read the end of {LOG}",
    Outcome.BROKEN: f"check the network path, and {LOG} for a crash",
    Outcome.TIMEOUT: f"the process hangs or the host is overloaded: read {LOG}, then restart the server",
    Outcome.HTTP_ERROR: "check that the URL is the metrics page (Triton: port 8002, path /metrics)",
    Outcome.GARBAGE: "check that the URL is a Prometheus page (Triton: port 8002, path /metrics)",
    Outcome.TOO_MUCH: "one server shows some hundred series: give its own metrics page, or for the time --timeout",
    Outcome.CERTIFICATE: "renew the certificate, give the name that it is for, or name its authority with --ca",
    Outcome.NO_ADDRESS: "correct the URL, e.g. http://127.0.0.1:8002/metrics",
    Outcome.NO_ROOM: "raise ulimit -n where the check runs, or check fewer targets in one call",
    Outcome.NO_SECRET: "correct what --bearer, --basic or --ca names, or the variable, and who may read it",
}
_DEAD = frozenset({Outcome.REFUSED, Outcome.BROKEN, Outcome.TIMEOUT, Outcome.CERTIFICATE})
"""The server itself does not answer. Every other failure may lie with the question: UNKNOWN."""


def scrape(target: Target, samples: Sequence[Snapshot]) -> Finding:
    """Judge whether the server could be read: the newest sample decides, an earlier failure is a WARNING."""
    if not samples:
        return Finding(SCRAPE, "", State.UNKNOWN, Kind.SCRAPE_FAILED, "no sample was taken", target.shown_url)
    newest = samples[-1]
    if not newest.ok:
        return _failed(target, newest)
    failures = [sample for sample in samples if not sample.ok]
    if failures:
        message = f"{len(failures)} of {len(samples)} scrapes failed, the last one did not: {failures[-1].reason}"
        advice = _ADVICE[failures[-1].outcome]
        return Finding(SCRAPE, "", State.WARNING, Kind.SCRAPE_FAILED, message, target.shown_url, advice)
    count = sum(len(family) for family in newest.series.values())
    message = f"{count} series in {newest.scrape_seconds * 1e3:.0f} ms"
    return Finding(SCRAPE, "", State.OK, Kind.SCRAPED, message, target.shown_url)


def sources(newest: Snapshot) -> list[Finding]:
    """List what was to be read beside the page and could not be; rules that need it see it as missing."""
    return [
        Finding(SOURCE, name, State.UNKNOWN, Kind.SCRAPE_FAILED, reason, name, "look whether it runs and is reachable")
        for name, reason in newest.beside_failed
    ]


def _failed(target: Target, newest: Snapshot) -> Finding:
    left = start_grace_left(target, newest)
    if left is not None:
        grace = target.start_grace_seconds
        message = f"starting for {grace - left:.0f} s of {grace:.0f} s: {target.shown_url}: {newest.reason}"
        advice = "wait; it turns CRITICAL when the grace is over"
        return Finding(SCRAPE, "", State.WARNING, Kind.STARTING, message, target.shown_url, advice)
    server_error = newest.outcome is Outcome.HTTP_ERROR and (newest.status or 0) >= 500
    state = State.CRITICAL if server_error or newest.outcome in _DEAD else State.UNKNOWN
    gone = f"; its process {target.pid} is gone" if newest.process_running is False else ""
    message, advice = f"{target.shown_url}: {newest.reason}{gone}", _ADVICE[newest.outcome]
    if newest.outcome is Outcome.REFUSED and target.missing_record:
        message += f"; no run record {target.missing_record}: no server was started from here, or it was stopped"
        advice = "start it with trtkit deploy --start"
        advice += f"; the end of {LOG} tells how the last one ended" if target.log else ""
    return Finding(SCRAPE, "", state, Kind.SCRAPE_FAILED, message, target.shown_url, advice)


def start_grace_left(target: Target, newest: Snapshot) -> float | None:
    """Return the seconds in which a refusing server is still starting; None when it should answer.

    Triton opens no port before its models are loaded, so a refusal alone does not tell loading from dead. The grace
    holds only for a start that was recorded, and not for a process known to be gone. It is a WARNING: not OK, because
    nobody can use the server; not CRITICAL, because nobody needs to get up; not UNKNOWN, because it is known.
    """
    if newest.outcome is not Outcome.REFUSED or target.started_at is None or newest.process_running is False:
        return None
    age = newest.wall_seconds - target.started_at
    return target.start_grace_seconds - age if 0 <= age < target.start_grace_seconds else None


@once_for_all
def engine_progress(samples: Sequence[Snapshot]) -> tuple[list[Finding], list[Skipped]]:
    """Judge whether the engine of every busy model makes steps, over the newest samples in a row in which it is busy.

    A hung engine leaves its last numbers on the page for ever, so while requests are active and no step is made,
    every number is stale. One sample cannot show that: then the check is listed as not judged.
    """
    findings = []
    skipped = []
    actives = [active_requests(sample) if sample.ok else {} for sample in samples]
    steps = [engine_steps(sample) if sample.ok else {} for sample in samples]
    times = [sample.monotonic_seconds for sample in samples]
    for subject, active in actives[-1].items():
        run = _busy_run(subject, actives)
        run += run == 1 < len(steps) and _has_grown(steps[-2].get(subject), steps[-1].get(subject))
        readings = [measured.get(subject, _NO_STEPS) for measured in steps[len(steps) - run :]]
        seconds = times[-1] - times[len(times) - run] if run else 0.0
        verdict = _progress_of(subject, active, readings, seconds)
        if isinstance(verdict, Finding):
            stands = verdict.kind is Kind.STALE
            findings.append(_spinning(verdict, samples[-1]) if stands else verdict)
        else:
            skipped.append(verdict)
    return findings, skipped


def _spinning(finding: Finding, newest: Snapshot) -> Finding:
    """Be sure at once where GPUs are busy and draw little: kernels that wait for each other, not a long step."""
    busy = METRICS["gpu_utilization"].read(newest)[""]
    power = METRICS["gpu_power_usage"].read(newest)[""]
    if not isinstance(busy, Reading) or not isinstance(power, Reading):
        return finding
    if busy.value < SPINNING_UTILIZATION or power.value >= SPINNING_POWER:
        return finding
    drawn = f"its GPUs are {busy.value:.0%} busy at {power.value:.0%} of their power limit: they wait for each other"
    return replace(finding, state=State.CRITICAL, message=f"{finding.message}; {drawn}")


def _has_grown(before: Reading | NoReading | None, after: Reading | NoReading | None) -> bool:
    """Whether steps were made since a sample in which the engine was idle: then it moves, though it was busy once."""
    return isinstance(before, Reading) and isinstance(after, Reading) and before.value < after.value


def is_frozen(samples: Sequence[Snapshot]) -> bool:
    """Whether a busy engine or a heartbeat stands still in these samples, so that more samples are worth taking."""
    if len(samples) < 2 or not samples[-1].ok:
        return False
    findings = engine_progress(samples)[0] + model_heartbeat(samples)[0]
    return any(finding.kind is Kind.STALE for finding in findings)


def is_unclear(samples: Sequence[Snapshot]) -> bool:
    """Whether it takes one more sample to tell whether a model lives and moves."""
    if not samples or not samples[-1].ok:
        return False
    (moving, unmoved), (beating, unbeaten) = engine_progress(samples), model_heartbeat(samples)
    if len(samples) > 1 and any(finding.kind is Kind.STALE for finding in moving + beating):
        return True
    return any(skip.reason in (TOO_FEW, TWO_SAMPLES) for skip in unmoved + unbeaten)


def _progress_of(
    subject: str, active: Reading | NoReading, readings: Sequence[Reading | NoReading], run_seconds: float
) -> Finding | Skipped:
    """Judge one model by its step counter in the samples of its busy run."""
    if isinstance(active, NoReading):
        return _not_seen(subject, active)
    if active.value == 0:
        return Finding(ENGINE_PROGRESS, subject, State.OK, Kind.IDLE, "no request is active", active.source)
    newest = readings[-1]
    if isinstance(newest, NoReading):
        return _not_seen(subject, newest)
    steps = [reading.value for reading in readings if isinstance(reading, Reading)]
    if len(steps) < 2 or any(later < earlier for earlier, later in pairwise(steps)):
        return Skipped(ENGINE_PROGRESS, TOO_FEW if len(steps) < 2 else f"its step counter went back (see {ONE_SERVER})")
    requests = f"{format_number(active.value)} requests active"
    seconds = f"{run_seconds:.1f} s"
    if len(set(steps)) > 1:
        message = f"steps were made in {seconds} with {requests}"
        return Finding(ENGINE_PROGRESS, subject, State.OK, Kind.WITHIN, message, newest.source)
    message = f"no step in {seconds} with {requests} (still {format_number(newest.value)}): its numbers are stale"
    advice = f"the engine hangs or one step is very long: check again, then read {LOG} and restart the server"
    state = State.CRITICAL if run_seconds >= STALL_SECONDS else State.UNKNOWN
    return Finding(ENGINE_PROGRESS, subject, state, Kind.STALE, message, newest.source, advice)


TOO_FEW = "it takes two samples in which requests are active (--samples)"
SPINNING_UTILIZATION, SPINNING_POWER = 0.95, 0.35
"""Hung engines were seen with GPUs that were all but fully busy at 80 to 95 W of several hundred."""
STALL_SECONDS = 60.0
"""An engine with requests that makes no step for so long hangs: no step of a plan lasts so long."""
_NO_STEPS = NoReading(Trouble.MISSING, "the page has no step counter for this model", GENERAL)


def _busy_run(subject: str, actives: Sequence[Measured]) -> int:
    """Count the samples, back from the newest, in which the subject was busy without a break."""
    run = 0
    for measured in reversed(actives):
        active = measured.get(subject)
        if not isinstance(active, Reading) or active.value == 0:
            break
        run += 1
    return run


def metric_sanity(newest: Snapshot, judged: Set[str], before: Sequence[Snapshot] = ()) -> Finding:
    """Look for impossible numbers in every metric that no rule judges (a rule reports those of its own metric).

    Also for what the series as a whole cannot be, with the samples ``before``.
    """
    whole = (undefined_labels(newest), dead_counters((*before, newest)))
    troubles = [("the page", trouble) for trouble in whole if trouble is not None]
    for name in sorted(METRICS.keys() - judged - {"active_requests"}):
        for subject, reading in METRICS[name].read(newest).items():
            if isinstance(reading, NoReading) and reading.trouble is not Trouble.MISSING:
                troubles.append((f"{name} {subject}".strip(), reading))
    if not troubles:
        return Finding(METRIC_SANITY, "", State.OK, Kind.WITHIN, "no number contradicts another")
    message = "; ".join(f"{where}: {reading.reason}" for where, reading in troubles)
    first = troubles[0][1]
    advice = f"the exporter is wrong or two write the same series: compare the page with {LOG}"
    return Finding(METRIC_SANITY, "", State.UNKNOWN, Kind(first.trouble.value), message, first.source, advice)


def _not_seen(subject: str, why: NoReading) -> Finding:
    message = f"whether the engine moves is not known: {why.reason}"
    advice = f"look for {why.source} on the metrics page"
    return Finding(ENGINE_PROGRESS, subject, State.UNKNOWN, Kind(why.trouble.value), message, why.source, advice)
