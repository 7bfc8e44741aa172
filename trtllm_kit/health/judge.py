"""One rule and the samples of one server: what is found for every subject. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trtllm_kit.health.changes import CHANGES, Change, Tally, compare, counts_requests
from trtllm_kit.health.memory import NOTHING, USUAL_AFTER, Memory, Moment, Run
from trtllm_kit.health.metrics import METRICS, WHOLE_SERVER, active_requests, busy, queue_depth, with_age_of
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.rules import Rule, When
from trtllm_kit.health.snapshot import Measured, NoReading, Reading, Snapshot, Trouble, Unit
from trtllm_kit.health.verdict import Finding, Kind, Skipped, State

CROWD = 4
"""Active requests from which on a server is crowded."""
Asked = bool | NoReading
"""Whether a rule asks in a sample, or why that is not known."""
_NEVER = Run(0, fired=False)
_IDLE = {
    When.BUSY: "no request is active",
    When.QUEUED: "no request waits",
    When.CROWDED: f"fewer than {CROWD} requests are active",
}


def judge(rule: Rule, samples: Sequence[Snapshot], memory: Memory = NOTHING) -> list[Finding]:
    """Apply one rule to every subject; ``samples`` is not empty and the newest one is good.

    A rule over two moments that has nothing to compare with yet is not among them; ``unjudged`` says so.
    """
    if rule.change is not None:
        return _judge_change(rule, rule.change, samples, memory)
    history = [METRICS[rule.metric].read(sample) if sample.ok else {} for sample in samples]
    asks = [_asks(rule.when, sample) for sample in samples]
    return [
        _judge_subject(rule, subject, [measured.get(subject) for measured in history], asks, memory, samples[-1])
        for subject in _subjects(history)
    ]


def unjudged(rule: Rule, findings: Sequence[Finding]) -> list[Skipped]:
    """List a rule that found nothing, because a change takes two moments."""
    return [] if findings else [Skipped(rule.name, "it compares two moments, and there is none before this one")]


def _asks(when: When, sample: Snapshot) -> Asked:
    if when is When.ALWAYS:
        return True
    if when is When.BUSY:
        return busy(sample)
    least = CROWD if when is When.CROWDED else 1
    measured = (active_requests if when is When.CROWDED else queue_depth)(sample).values()
    if any(isinstance(reading, Reading) and reading.value >= least for reading in measured):
        return True
    return next((reading for reading in measured if isinstance(reading, NoReading)), False)


def _subjects(history: Sequence[Measured]) -> list[str]:
    """Name every subject that any sample has, without the placeholder of a page that lacks the family."""
    newest = history[-1]
    if list(newest) == [WHOLE_SERVER]:
        return [WHOLE_SERVER]
    earlier = {subject for measured in history for subject in measured} - {WHOLE_SERVER}
    return sorted(earlier | newest.keys())


def _judge_subject(
    rule: Rule,
    subject: str,
    readings: Sequence[Reading | NoReading | None],
    asks: Sequence[Asked],
    memory: Memory,
    sample: Snapshot,
) -> Finding:
    gone = NoReading(Trouble.MISSING, "an earlier sample had it and the newest does not", rule.metric)
    newest, asked = readings[-1] or gone, asks[-1]
    if isinstance(newest, NoReading):
        vanished = newest is gone or _was_seen(rule.metric, subject, memory)
        return _no_reading(rule, subject, newest, _state_without(rule, newest, vanished=vanished))
    if isinstance(asked, NoReading):
        missing = asked.trouble is Trouble.MISSING and rule.on_missing is State.OK
        reason = f"whether it asks is not known: {asked.reason}"
        state = State.OK if missing else State.UNKNOWN
        return _no_reading(rule, subject, replace(asked, reason=reason), state)
    if not asked:
        return _finding(rule, subject, Kind.IDLE, newest, _IDLE[rule.when])
    known = memory.wall_seconds > 0 and (rule.metric, subject) in memory.seen
    before = memory.runs.get((rule.name, subject), _NEVER)
    finding = _confirmed(rule, subject, list(zip(readings, asks, strict=True)), before, known_before=known)
    return _with_evidence(finding, rule, [sample], memory)


def _was_seen(metric: str, subject: str, memory: Memory) -> bool:
    """Whether an earlier check had the number; a page without the family stands for all that it had."""
    if subject != WHOLE_SERVER:
        return (metric, subject) in memory.seen
    return any(name == metric for name, _ in memory.seen)


def _state_without(rule: Rule, why: NoReading, *, vanished: bool) -> State:
    """Say what it means that there is no number; one that was there before and is gone is never OK."""
    if why.trouble is not Trouble.MISSING:
        return State.UNKNOWN
    if rule.on_missing is State.OK and vanished:
        return State.UNKNOWN
    return rule.on_missing


_Seen = tuple[Reading | NoReading | None, Asked]


def _confirmed(rule: Rule, subject: str, history: Sequence[_Seen], before: Run, *, known_before: bool) -> Finding:
    """Follow the samples, from what was remembered to the newest, and decide."""
    run, fired = before.outside, before.fired
    newest: Reading | None = None
    for reading, asked in history:
        newest = reading if isinstance(reading, Reading) else newest
        if not isinstance(reading, Reading) or isinstance(asked, NoReading):
            run, known_before = 0, False
        elif asked and not rule.ok.contains(reading.value):
            run += 1
            fired = fired or run >= rule.samples
        else:
            run, known_before = 0, True
            fired = fired and rule.clear is not None and not rule.clear.contains(reading.value)
    assert newest is not None  # noqa: S101  # the caller has seen the newest sample
    counted = f"healthy is {rule.ok}, outside in {min(run, rule.samples)} of {rule.samples} samples"
    if run == 0 and fired:
        finding = _finding(rule, subject, Kind.OUTSIDE, newest, f"it fired and ends within {rule.clear}")
        return replace(finding, fired=True)
    if run == 0:
        return _finding(rule, subject, Kind.WITHIN, newest, f"healthy is {rule.ok}")
    kind = Kind.PASSING if known_before else Kind.UNDECIDED
    finding = _finding(rule, subject, Kind.OUTSIDE if fired else kind, newest, counted)
    return replace(finding, run=run, fired=fired)


def _judge_change(rule: Rule, change: Change, samples: Sequence[Snapshot], memory: Memory) -> list[Finding]:
    """Compare the newest sample with the one a window ago, or the oldest one since the server's start.

    A server that shows nothing that grows with requests has begun anew: what it lacks has not vanished.
    """
    newest = samples[-1]
    now = change.count(newest)
    if not now:
        why = NoReading(Trouble.MISSING, "the page has no such family", change.families[0])
        vanished = _was_seen(change.name, WHOLE_SERVER, memory) and counts_requests(newest)
        return [_no_reading(rule, WHOLE_SERVER, why, _state_without(rule, why, vanished=vanished))]
    asked = _asks(rule.when, newest)
    findings = []
    for subject in sorted(now):
        reading = change_reading(change, rule.window, samples, memory, subject, now[subject])
        if reading is None:
            continue
        reading = with_age_of(newest, reading, [name + part for name in change.families for part in _PARTS])
        if isinstance(reading, NoReading):
            findings.append(_no_change(rule, subject, reading))
        elif asked is False:
            findings.append(_finding(rule, subject, Kind.IDLE, reading, _IDLE[rule.when]))
        else:
            before = memory.runs.get((rule.name, subject), _NEVER)
            finding = _confirmed(rule, subject, [(reading, asked)], before, known_before=True)
            findings.append(_with_evidence(finding, rule, samples, memory))
    return findings


def change_reading(
    change: Change, window: int, samples: Sequence[Snapshot], memory: Memory, subject: str, now: Tally
) -> Reading | NoReading | None:
    """Read a change of one subject over a window; None when there is nothing to compare with.

    Moments before a restart are passed over: the nearest ones are looked at first.
    """
    newest = samples[-1]
    moments = [*memory.moments, *(_moment(change, sample) for sample in samples[:-1] if sample.ok)]
    best: Reading | NoReading | None = None
    for moment in reversed(moments):
        before = moment.tallies.get(change.name, {}).get(subject)
        seconds = newest.wall_seconds - moment.wall_seconds
        if before is None or seconds <= 0:
            continue
        compared = compare(change, before, now, seconds)
        if compared is None:
            break
        best = compared
        if seconds >= window:
            break
    return _from_usual(change, best, memory, subject) if change.baseline else best


_PARTS = ("", "_count", "_sum", "_bucket")
"""What a family's name may end with on a page: nothing, or what a histogram is made of."""


def _moment(change: Change, sample: Snapshot) -> Moment:
    return Moment(sample.wall_seconds, {change.name: change.count(sample)})


def _from_usual(
    change: Change, reading: Reading | NoReading | None, memory: Memory, subject: str
) -> Reading | NoReading | None:
    """Turn a value into its distance from what is usual, as a share of that."""
    if not isinstance(reading, Reading):
        return reading
    usual = memory.usual.get((change.name, subject))
    if usual is None or usual.windows < USUAL_AFTER or usual.mean <= 0:
        windows = usual.windows if usual else 0
        return NoReading(Trouble.FIRST, f"{windows} of {USUAL_AFTER} windows that show what is usual", reading.source)
    away = abs(reading.value - usual.mean) / usual.mean
    detail = f"{reading.detail}, usually {format_number(usual.mean)} s"
    return Reading(away, Unit.FACTOR, reading.source, detail=detail)


def _with_evidence(finding: Finding, rule: Rule, samples: Sequence[Snapshot], memory: Memory) -> Finding:
    """Add the values of the metrics that a rule wants to be shown when it fires."""
    if finding.kind is not Kind.OUTSIDE or not rule.evidence:
        return finding
    texts = []
    for name in rule.evidence:
        values = _values(name, samples, memory)
        told = ", ".join(f"{subject} {value}".strip() for subject, value in sorted(values.items()))
        texts.append(f"{name}: {told or 'not known'}")
    return replace(finding, message="; ".join([finding.message, *texts]))


def _values(name: str, samples: Sequence[Snapshot], memory: Memory) -> Mapping[str, str]:
    change = CHANGES.get(name)
    if change is None:
        measured = METRICS[name].read(samples[-1])
    else:
        now = change.count(samples[-1])
        read = {one: change_reading(change, 300, samples, memory, one, now[one]) for one in now}
        measured = {one: reading for one, reading in read.items() if reading is not None}
    return {one: format_number(got.value) if isinstance(got, Reading) else got.reason for one, got in measured.items()}


_STATES = {Kind.WITHIN: State.OK, Kind.IDLE: State.OK, Kind.PASSING: State.OK, Kind.UNDECIDED: State.UNKNOWN}


def _finding(rule: Rule, subject: str, kind: Kind, reading: Reading, compared: str) -> Finding:
    detail = f" ({reading.detail})" if reading.detail else ""
    see = f" ({rule.runbook})" if rule.runbook else ""
    advice = {
        Kind.OUTSIDE: f"{rule.advice}{see}",
        Kind.UNDECIDED: f"take {rule.samples} samples or more (--samples)",
    }
    return Finding(
        rule=rule.name,
        subject=subject,
        state=_STATES.get(kind, rule.severity),
        kind=kind,
        message=f"{format_number(reading.value)}{detail}, {compared}",
        source=reading.source,
        advice=advice.get(kind, ""),
    )


def _no_change(rule: Rule, subject: str, why: NoReading) -> Finding:
    """Say why a change says nothing: too little happened, or it cannot be believed."""
    if why.trouble not in (Trouble.QUIET, Trouble.FIRST):
        missing = why.trouble is Trouble.MISSING
        return _no_reading(rule, subject, why, rule.on_missing if missing else State.UNKNOWN)
    return Finding(rule.name, subject, State.OK, Kind(why.trouble.value), why.reason, why.source)


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
