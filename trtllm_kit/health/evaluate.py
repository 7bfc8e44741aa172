"""The judgement: samples and rules in, a verdict out. Pure, total and independent of the order of rules and series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trtllm_kit.health.builtin import engine_progress, metric_sanity, scrape
from trtllm_kit.health.liveness import model_heartbeat, one_server, request_failures
from trtllm_kit.health.metrics import METRICS, WHOLE_SERVER, busy
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.rules import Rule, Ruleset, When
from trtllm_kit.health.snapshot import Measured, NoReading, Reading, Snapshot, Target, Trouble, Unit
from trtllm_kit.health.verdict import LOG, Finding, Kind, Measure, Skipped, State, Verdict, worst


def evaluate(target: Target, samples: Sequence[Snapshot], ruleset: Ruleset) -> Verdict:
    """Judge the samples (oldest first) of one server.

    The newest sample decides; older ones confirm. When it could not be scraped its own finding stands in for all
    others, beside what was already CRITICAL in the samples before it: a failed probe hides no confirmed finding.
    """
    readable = _until_last_good(samples)
    judged, skipped = _judged(readable, ruleset) if readable else ([], [])
    if len(readable) < len(samples) or not samples:
        judged = [finding for finding in judged if finding.state is State.CRITICAL]
        skipped = [Skipped(rule.name, "the newest scrape failed") for rule in ruleset.rules]
    findings = [_naming_log(finding, target) for finding in (scrape(target, samples), *judged)]
    return Verdict(
        url=target.shown_url,
        state=worst(finding.state for finding in findings),
        findings=tuple(sorted(findings, key=lambda finding: finding.order)),
        measures=tuple(_measures(samples, ruleset)),
        not_applicable=tuple(sorted(ruleset.not_applicable, key=lambda skip: skip.rule)),
        not_judged=tuple(sorted(skipped, key=lambda skip: skip.rule)),
        samples=len(samples),
        taken_at=samples[-1].wall_seconds if samples else 0.0,
    )


def _judged(samples: Sequence[Snapshot], ruleset: Ruleset) -> tuple[list[Finding], list[Skipped]]:
    """Make every check but the scrape itself; the newest sample is good."""
    findings = [finding for rule in ruleset.rules for finding in judge(rule, samples)]
    skipped: list[Skipped] = []
    for check in (model_heartbeat, engine_progress, request_failures, one_server):
        seen, unseen = check(samples)
        findings.extend(seen)
        skipped.extend(unseen)
    findings.append(metric_sanity(samples[-1], {rule.metric for rule in ruleset.rules}))
    return findings, skipped


def judge(rule: Rule, samples: Sequence[Snapshot]) -> list[Finding]:
    """Apply one rule to every subject; ``samples`` is not empty and the newest one is good."""
    history = [METRICS[rule.metric].read(sample) if sample.ok else {} for sample in samples]
    asks = [busy(sample) if rule.when is When.BUSY else True for sample in samples]
    return [
        _judge_subject(rule, subject, [measured.get(subject) for measured in history], asks)
        for subject in _subjects(history)
    ]


def _subjects(history: Sequence[Measured]) -> list[str]:
    """Name every subject that any sample has, without the placeholder of a page that lacks the family."""
    newest = history[-1]
    if list(newest) == [WHOLE_SERVER]:
        return [WHOLE_SERVER]
    earlier = {subject for measured in history for subject in measured} - {WHOLE_SERVER}
    return sorted(earlier | newest.keys())


def _until_last_good(samples: Sequence[Snapshot]) -> Sequence[Snapshot]:
    end = max((number for number, sample in enumerate(samples, 1) if sample.ok), default=0)
    return samples[:end]


_Asked = bool | NoReading
"""Whether a rule asks in a sample, or why that is not known."""


def _judge_subject(
    rule: Rule, subject: str, readings: Sequence[Reading | NoReading | None], asks: Sequence[_Asked]
) -> Finding:
    gone = NoReading(Trouble.MISSING, "an earlier sample had it and the newest does not", rule.metric)
    newest, asked = readings[-1] or gone, asks[-1]
    if isinstance(newest, NoReading):
        missing = newest.trouble is Trouble.MISSING
        return _no_reading(rule, subject, newest, rule.on_missing if missing else State.UNKNOWN)
    if isinstance(asked, NoReading):
        reason = f"whether the server is busy is not known: {asked.reason}"
        return _no_reading(rule, subject, replace(asked, reason=reason), State.UNKNOWN)
    if not asked:
        return _finding(rule, subject, Kind.IDLE, newest, "no request is active")
    outside = [_is_outside(rule, reading, ask) for reading, ask in zip(readings, asks, strict=True)]
    return _confirmed(rule, subject, newest, outside)


def _is_outside(rule: Rule, reading: Reading | NoReading | None, asked: _Asked) -> bool | None:
    """Whether one sample speaks against the rule; None when it cannot say."""
    if not isinstance(reading, Reading) or isinstance(asked, NoReading):
        return None
    return asked and not rule.ok.contains(reading.value)


def _confirmed(rule: Rule, subject: str, newest: Reading, outside: Sequence[bool | None]) -> Finding:
    """Decide from the run of samples outside that ends with the newest one."""
    run = next((back for back, out in enumerate(reversed(outside)) if not out), len(outside))
    if run == 0:
        return _finding(rule, subject, Kind.WITHIN, newest, f"healthy is {rule.ok}")
    counted = f"healthy is {rule.ok}, outside in {min(run, rule.samples)} of {rule.samples} samples"
    if run >= rule.samples:
        return _finding(rule, subject, Kind.OUTSIDE, newest, counted)
    broken_by_health = run < len(outside) and outside[-1 - run] is False
    return _finding(rule, subject, Kind.PASSING if broken_by_health else Kind.UNDECIDED, newest, counted)


def _naming_log(finding: Finding, target: Target) -> Finding:
    """Put the path of the server's log into the advice, where it is known."""
    return replace(finding, advice=finding.advice.replace(LOG, target.log)) if target.log else finding


_STATES = {Kind.WITHIN: State.OK, Kind.IDLE: State.OK, Kind.PASSING: State.OK, Kind.UNDECIDED: State.UNKNOWN}


def _finding(rule: Rule, subject: str, kind: Kind, reading: Reading, compared: str) -> Finding:
    detail = f" ({reading.detail})" if reading.detail else ""
    state = _STATES.get(kind, rule.severity)
    advice = {Kind.OUTSIDE: rule.advice, Kind.UNDECIDED: f"take {rule.samples} samples or more (--samples)"}
    return Finding(
        rule=rule.name,
        subject=subject,
        state=state,
        kind=kind,
        message=f"{format_number(reading.value)}{detail}, {compared}",
        source=reading.source,
        advice=advice.get(kind, ""),
    )


def _no_reading(rule: Rule, subject: str, why: NoReading, state: State) -> Finding:
    missing = why.trouble is Trouble.MISSING
    return Finding(
        rule=rule.name,
        subject=subject,
        state=state,
        kind=Kind(why.trouble.value),
        message=f"no usable number: {why.reason}",
        source=why.source,
        advice=f"look for {why.source} on the metrics page{rule.if_missing if missing else ''}",
    )


def _measures(samples: Sequence[Snapshot], ruleset: Ruleset) -> Iterator[Measure]:
    """List every metric that a rule reads, and the time of the scrape, as the newest sample has them."""
    newest = samples[-1] if samples and samples[-1].ok else None
    for name in sorted({rule.metric for rule in ruleset.rules} | {"active_requests"}):
        metric = METRICS[name]
        rules = sorted((rule for rule in ruleset.rules if rule.metric == name), key=lambda rule: rule.name)
        ranges = {rule.severity: str(rule.ok) for rule in rules}
        measured = metric.read(newest) if newest is not None else {"": None}
        for subject, reading in measured.items():
            value = reading.value if isinstance(reading, Reading) else None
            label = f"{name}_{subject}" if len(measured) > 1 else name
            warning, critical = ranges.get(State.WARNING, ""), ranges.get(State.CRITICAL, "")
            yield Measure(label, value, metric.unit, warning, critical)
    yield Measure("scrape_seconds", newest.scrape_seconds if newest is not None else None, Unit.SECONDS)
