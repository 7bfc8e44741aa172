"""The judgement: samples and rules in, a verdict out. Pure, total and independent of the order of rules and series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trtllm_kit.health.builtin import engine_progress, metric_sanity, scrape, sources
from trtllm_kit.health.changes import CHANGES
from trtllm_kit.health.judge import change_reading, judge, unjudged
from trtllm_kit.health.liveness import model_heartbeat, one_server, request_failures
from trtllm_kit.health.memory import NOTHING, Key, Memory, grown_usual, last_pulse, remember
from trtllm_kit.health.metrics import METRICS
from trtllm_kit.health.rules import Rule, Ruleset, When
from trtllm_kit.health.snapshot import NoReading, Reading, Snapshot, Target, Unit
from trtllm_kit.health.verdict import LOG, Finding, Measure, Skipped, State, Verdict, worst


def evaluate(
    target: Target,
    samples: Sequence[Snapshot],
    ruleset: Ruleset,
    memory: Memory = NOTHING,
    more: Sequence[Finding] = (),
) -> Verdict:
    """Judge the samples (oldest first) of one server, with what earlier checks left; ``more`` was found elsewhere.

    The newest sample decides; older ones confirm. When it could not be scraped its own finding stands in for all
    others, beside what was already CRITICAL in the samples before it: a failed probe hides no confirmed finding.
    """
    readable = _until_last_good(samples)
    judged, skipped = _judged(readable, ruleset, memory) if readable else ([], [])
    if len(readable) < len(samples) or not samples:
        judged = [finding for finding in judged if finding.state is State.CRITICAL]
        skipped = [Skipped(rule.name, "the newest scrape failed") for rule in ruleset.rules]
    findings = [_naming_log(finding, target) for finding in (scrape(target, samples), *judged, *more)]
    return Verdict(
        url=target.shown_url,
        state=worst(finding.state for finding in findings),
        findings=tuple(sorted(findings, key=lambda finding: finding.order)),
        measures=tuple(_measures(samples, ruleset)),
        not_applicable=tuple(sorted(ruleset.not_applicable, key=lambda skip: skip.rule)),
        not_judged=tuple(sorted(skipped, key=lambda skip: skip.rule)),
        samples=len(samples),
        taken_at=samples[-1].wall_seconds if samples else 0.0,
        name=target.name,
    )


def _judged(samples: Sequence[Snapshot], ruleset: Ruleset, memory: Memory) -> tuple[list[Finding], list[Skipped]]:
    """Make every check but the scrape itself; the newest sample is good."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for rule in ruleset.rules:
        found = judge(rule, samples, memory)
        findings.extend(found)
        skipped.extend(unjudged(rule, found))
    watched = with_pulse(samples, memory)
    for check in (model_heartbeat, engine_progress, request_failures):
        seen, unseen = check(watched)
        findings.extend(seen)
        skipped.extend(unseen)
    seen, unseen = one_server(samples if len(samples) > 1 else watched)
    findings.extend(seen)
    skipped.extend(unseen)
    findings.extend(sources(samples[-1]))
    judged = {rule.metric for rule in ruleset.rules}
    findings.append(metric_sanity(samples[-1], judged, watched[:-1]))
    return findings, skipped


def with_pulse(samples: Sequence[Snapshot], memory: Memory) -> Sequence[Snapshot]:
    """Put what the check before saw of the server's life in front of the samples, unless it restarted since."""
    earlier = last_pulse(memory, samples[0])
    return samples if earlier is None else (earlier, *samples)


def next_memory(memory: Memory, samples: Sequence[Snapshot], ruleset: Ruleset, verdict: Verdict) -> Memory:
    """Return what the next check of this server will want to know."""
    named = frozenset(name for rule in ruleset.rules for name in (rule.metric, *rule.evidence) if name in CHANGES)
    good = [sample for sample in samples if sample.ok]
    if not good:
        return memory
    seen = frozenset(_present(good[-1], ruleset))
    usual = dict(memory.usual)
    for name in sorted(named):
        change = CHANGES[name]
        for subject, tally in change.count(good[-1]).items() if change.baseline else ():
            plain = replace(change, baseline=False)
            reading = change_reading(plain, _WINDOW, good, memory, subject, tally)
            if isinstance(reading, Reading):
                usual[name, subject] = grown_usual(usual.get((name, subject)), reading.value)
    return remember(replace(memory, usual=usual), good[-1], verdict.findings, named, seen)


_WINDOW = 300


def _present(sample: Snapshot, ruleset: Ruleset) -> Iterator[Key]:
    """List the metrics of rules that a sample has, by subject."""
    for name in {rule.metric for rule in ruleset.rules}:
        change = CHANGES.get(name)
        subjects = METRICS[name].read(sample) if change is None else change.count(sample)
        yield from ((name, subject) for subject, one in subjects.items() if change or isinstance(one, Reading))


def _until_last_good(samples: Sequence[Snapshot]) -> Sequence[Snapshot]:
    end = max((number for number, sample in enumerate(samples, 1) if sample.ok), default=0)
    return samples[:end]


def _naming_log(finding: Finding, target: Target) -> Finding:
    """Put the path of the server's log into the advice, where it is known."""
    return replace(finding, advice=finding.advice.replace(LOG, target.log)) if target.log else finding


def _measures(samples: Sequence[Snapshot], ruleset: Ruleset) -> Iterator[Measure]:
    """List every metric that a rule reads, and the time of the scrape, as the newest sample has them.

    One that is not there, and need not be, is left out.
    """
    newest = samples[-1] if samples and samples[-1].ok else None
    needed = {rule.metric for rule in ruleset.rules if rule.on_missing is not State.OK} | {"active_requests"}
    for name in sorted({rule.metric for rule in ruleset.rules if rule.change is None} | needed - CHANGES.keys()):
        measured = METRICS[name].read(newest) if newest is not None else {"": None}
        if name in needed or any(isinstance(reading, Reading) for reading in measured.values()):
            yield from _measured(name, measured, [rule for rule in ruleset.rules if rule.metric == name])
    yield Measure("scrape_seconds", newest.scrape_seconds if newest is not None else None, Unit.SECONDS)


_Values = Mapping[str, Reading | NoReading | None]


def _measured(name: str, measured: _Values, rules: Sequence[Rule]) -> Iterator[Measure]:
    """Write one metric, with the ranges of the rules that ask always; those of few samples go first."""
    always = sorted(rules, key=lambda rule: (rule.when is When.QUEUED, rule.samples, rule.name), reverse=True)
    ranges = {rule.severity: str(rule.ok) for rule in always}
    for subject, reading in measured.items():
        value = reading.value if isinstance(reading, Reading) else None
        label = f"{name}_{subject}" if len(measured) > 1 else name
        warning, critical = ranges.get(State.WARNING, ""), ranges.get(State.CRITICAL, "")
        yield Measure(label, value, METRICS[name].unit, warning, critical)
