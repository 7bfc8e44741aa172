"""The same rules for Prometheus: what ``check-health`` judges, as alerts, and each metric as one PromQL expression.

A rule stays one definition: its range, severity, samples and what missing means are read from the ruleset. Where
``check-health`` finds a number missing, not finite or impossible, the range's alert is silent and a second alert, named
``...Unknown``, fires: unknown is never OK here either. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.health.families import GENERAL, REQUESTS
from trtllm_kit.health.liveness import FEWEST_FAILURES
from trtllm_kit.health.promql import FAMILIES, LOAD, elsewhere, expressions, only, recorded
from trtllm_kit.health.ranges import Range, format_number
from trtllm_kit.health.requests import FAILURES, NOT_THE_ENGINE, SUCCESSES
from trtllm_kit.health.rules import ALL, WINDOW_SECONDS, Rule, Ruleset, When
from trtllm_kit.health.snapshot import Unit
from trtllm_kit.health.verdict import State

Group = dict[str, Any]
WINDOW_SAMPLES = 4
"""Scrapes in which something must move at least once, or it stands still."""
FAILURE_WINDOW = "5m"
_A_MINUTE = 60
_SERVER = "job, instance"
_MODEL = "job, instance, model, version"
_CONDITION: Mapping[When, tuple[str, str]] = {
    When.BUSY: ("active_requests", "> 0"),
    When.QUEUED: ("queue_depth", "> 0"),
    When.CROWDED: ("active_requests", ">= 4"),
}
"""What must hold for a rule to ask, of the requests of a server."""


def rule_groups(ruleset: Ruleset, job: str, *, start_grace_seconds: float, scrape_seconds: int) -> tuple[Group, ...]:
    """Return the groups of a Prometheus rules file for the servers of one scrape job.

    A rule's consecutive samples become the time between them, ``(samples - 1) x scrape_seconds``; what ends an alert is
    the healthy range, for Prometheus knows no other (``clear``).
    """
    wanted = {(name, WINDOW_SECONDS): None for name in ALL} | {(LOAD, WINDOW_SECONDS): None}
    wanted |= {(rule.metric, _window(rule)): None for rule in ruleset.rules}
    records = [
        {"record": recorded(name, None, window), "expr": expressions(job, window)[name]} for name, window in wanted
    ]
    alerts = [
        *_built_in(job, start_grace_seconds, scrape_seconds),
        *(alert for rule in ruleset.rules for alert in _of_rule(rule, job, scrape_seconds)),
    ]
    return ({"name": f"trtkit-{job}", "interval": f"{scrape_seconds}s", "rules": [*records, *alerts]},)


def _window(rule: Rule) -> int:
    return rule.window if rule.change is not None else WINDOW_SECONDS


def _of_rule(rule: Rule, job: str, scrape_seconds: int) -> Iterator[Group]:
    """Yield the alert of a range, and the one for a number that is not there or cannot be true."""
    value, seconds = recorded(rule.metric, job, _window(rule)), (rule.samples - 1) * scrape_seconds
    ratio = rule.unit is Unit.RATIO
    impossible = ("< 0", "> 1" if ratio else "== +Inf")
    sound = f"{value} >= 0 {'<= 1' if ratio else '< +Inf'}"
    outside = [f"{sound} {bound}" for bound in _bounds(rule.ok)]
    if outside:
        now = f"It is {{{{ $value | humanize }}}}; healthy is {rule.ok}. {rule.advice}"
        yield _alert(rule.name, _when(rule, outside, job), rule.severity, seconds, rule.summary, now)
    odd = [f"{value} != {value}", *(f"{value} {bound}" for bound in impossible), *_condition_unknown(rule, job)]
    if rule.on_missing is not State.OK:
        odd.append(_when(rule, [_missing(rule, value, job)], job))
    severity = State.UNKNOWN if rule.on_missing is State.OK else rule.on_missing
    summary = f"{rule.metric} of a server that answers is missing, not a number, or impossible."
    joined = " or ".join(f"({case})" for case in odd)
    yield _alert(f"{rule.name}-unknown", joined, severity, seconds, summary, f"{rule.name} cannot be judged.")


def _condition_unknown(rule: Rule, job: str) -> Iterator[str]:
    """Yield the cases in which it is not known whether a rule asks."""
    condition = _CONDITION.get(rule.when)
    if condition is not None:
        value = recorded(condition[0], job)
        if rule.on_missing is not State.OK:
            yield f"up{only(job)} == 1 unless on ({_SERVER}) {value}"
        yield from (f"{value} != {value}", f"{value} < 0", f"{value} == +Inf")


def _missing(rule: Rule, value: str, job: str) -> str:
    """Select the servers that answer without the metric; what another exporter tells is missing of all at once.

    A metric of two moments is missing where its families are; that nothing happened between them is no fault.
    """
    if elsewhere(rule.metric):
        return f"absent({value})"
    there = f'{{job={json.dumps(job)},__name__=~"{FAMILIES[rule.metric]}"}}' if rule.metric in FAMILIES else value
    return f"up{only(job)} == 1 unless on ({_SERVER}) {there}"


def _when(rule: Rule, cases: list[str], job: str) -> str:
    """Join the cases in which a rule fires; some ask only of servers whose requests are as the rule says."""
    joined = " or ".join(cases)
    condition = _CONDITION.get(rule.when)
    if condition is None:
        return joined
    metric, bound = condition
    by = "" if elsewhere(rule.metric) else _SERVER
    return f"({joined}) and on ({by}) sum by ({by}) ({recorded(metric, job)}) {bound}"


def _bounds(healthy: Range) -> Iterator[str]:
    """Yield the comparisons that an unhealthy value meets, one of them."""
    if healthy.inverted:
        yield f">= {format_number(healthy.start)} <= {format_number(healthy.end)}"
        return
    if healthy.start > 0:
        yield f"< {format_number(healthy.start)}"
    if healthy.end != float("inf"):
        yield f"> {format_number(healthy.end)}"


def _built_in(job: str, start_grace_seconds: float, scrape_seconds: int) -> Iterator[Group]:
    """Yield the checks that no profile switches off."""
    window = f"[{WINDOW_SAMPLES * scrape_seconds}s]"
    down, grace = f"up{only(job)} == 0", round(start_grace_seconds)
    summary = "A server does not answer."
    advice = "It is starting, or dead: no port is open before the models are loaded."
    yield _alert("scrape", down, State.WARNING, _A_MINUTE, summary, advice)
    summary = "A server does not answer, for longer than a start takes."
    yield _alert("scrape-failed", down, State.CRITICAL, grace, summary, "See whether its process lives; read its log.")
    advice = f"No target of job {job} is known: look at the scrape configuration, or the PodMonitor."
    summary = "Prometheus looks at no server."
    yield _alert("scrape-unknown", f"absent(up{only(job)})", State.UNKNOWN, 5 * _A_MINUTE, summary, advice)
    summary, advice = "The process of a model is dead or held.", "Triton does not start it again: restart the server."
    yield _alert("model-heartbeat", _still("heartbeat", job, window), State.CRITICAL, 0, summary, advice)
    active = f"min_over_time({REQUESTS}{only(job, request_type='active')}{window})"
    busy = f"max without (request_type) ({active}) > 0"
    stalled = f"{_still('iteration_counter', job, window)} and on ({_MODEL}) {busy}"
    summary = "Requests are active and the engine makes no step: its numbers are stale."
    advice = "It hangs, or one step is very long: read its log and restart the server."
    yield _alert("engine-progress", stalled, State.UNKNOWN, 0, summary, advice)
    yield from _failures(job)


def _still(kind: str, job: str, window: str) -> str:
    """Select the models of which a number stands still; of a server that came up just now nothing is known yet."""
    series = f"{GENERAL}{only(job, general_type=kind)}{window}"
    seen = f"count_over_time({series}) >= {WINDOW_SAMPLES - 1}"
    return f"max without (general_type) (changes({series}) == 0 and {seen}) == 0"


def _failures(job: str) -> Iterator[Group]:
    fault = json.dumps("|".join(sorted(NOT_THE_ENGINE)))
    failures = f"{FAILURES}{{job={json.dumps(job)},reason!~{fault}}}"
    failed = f"sum by ({_MODEL}) (increase({failures}[{FAILURE_WINDOW}]))"
    succeeded = f"sum by ({_MODEL}) (increase({SUCCESSES}{only(job)}[{FAILURE_WINDOW}]))"
    advice = "Read the server's log for the reason, and look at what these requests held."
    some = "Requests failed by the engine's fault."
    yield _alert("request-failures", f"{failed} > 0", State.WARNING, 0, some, advice)
    everything = f"{failed} >= {FEWEST_FAILURES} and on ({_MODEL}) {succeeded} == 0"
    advice = "The server answers and the model does not: read its log, then restart the server."
    every = "Every request failed by the engine's fault."
    yield _alert("request-failures-all", everything, State.CRITICAL, 0, every, advice)


def _alert(name: str, expr: str, severity: State, seconds: int, summary: str, description: str) -> Group:
    alert: Group = {"alert": f"Trtkit{''.join(part.capitalize() for part in name.split('-'))}", "expr": expr}
    if seconds:
        alert["for"] = f"{seconds}s"
    alert["labels"] = {"severity": severity.name.lower()}
    alert["annotations"] = {"summary": summary, "description": description, "check": name}
    return alert
