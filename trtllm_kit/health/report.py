"""The verdict in print: a Nagios plugin's output, JSON, the exit code. Pure; nothing here decides anything.

Sources: the monitoring-plugins development guidelines (status line, performance data, exit codes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.snapshot import Unit
from trtllm_kit.health.verdict import Finding, Kind, Measure, Skipped, State, Verdict, worst

SERVICE = "TRTKIT"
_MOST_FINDINGS = 3
_UNIT_SYMBOLS = {Unit.SECONDS: "s"}
_LIMITS = {Unit.RATIO: "0;1"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def nagios_line(verdict: Verdict) -> str:
    """Write the one line ``TRTKIT STATE: text | performance data`` of a Nagios plugin."""
    measures = " ".join(_performance(measure) for measure in verdict.measures)
    return f"{status_line(SERVICE, verdict.state, _summary(verdict))} | {measures}"


def fleet_output(verdicts: Sequence[Verdict], *, verbose: bool = False) -> str:
    """Write one line for several targets, with the count of each state, and the output of each that is not OK."""
    state = worst(verdict.state for verdict in verdicts)
    counts = {one: sum(verdict.state is one for verdict in verdicts) for one in reversed(list(State))}
    told = ", ".join(f"{count} {one}" for one, count in counts.items() if count)
    measures = " ".join(f"'{one.value.lower()}'={count};;;0;{len(verdicts)}" for one, count in counts.items())
    lines = [f"{status_line(SERVICE, state, f'{len(verdicts)} targets: {told}')} | {measures}"]
    for verdict in sorted(verdicts, key=lambda one: (-one.state.severity, one.name or one.url)):
        if verbose or verdict.state is not State.OK:
            lines.append(f"{_plain(verdict.name or verdict.url)} {verdict.state}: {_plain(_summary(verdict))}")
            lines.extend(f"  {_plain(line)}" for line in _long_lines(verdict, verbose=verbose))
    return "\n".join(lines)


def status_line(service: str, state: State, text: str) -> str:
    """Write the part of the line before the bar."""
    return f"{service} {state}: {_plain(text)}"


def nagios_output(verdict: Verdict, *, verbose: bool = False) -> str:
    """Write the line and, below it, a line for every finding that is not OK (``verbose``: for all) with its advice."""
    return "\n".join([nagios_line(verdict), *(_plain(line) for line in _long_lines(verdict, verbose=verbose))])


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as JSON values, with its exit code."""
    document = {"state": verdict.state.value, "exit_code": verdict.state.exit_code}
    return document | {name: _json(value) for name, value in asdict(verdict).items() if name != "state"}


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""
    return verdict.state.exit_code


def _summary(verdict: Verdict) -> str:
    """Name what is wrong, the gravest first; when nothing is, what was looked at."""
    wrong = [finding for finding in verdict.findings if finding.state is not State.OK]
    if wrong:
        texts = [f"{finding.title}: {finding.message}" for finding in wrong[:_MOST_FINDINGS]]
        rest = f"; {len(wrong) - _MOST_FINDINGS} more" if len(wrong) > _MOST_FINDINGS else ""
        return "; ".join(texts) + rest
    numbers = ", ".join(f"{m.label} {format_number(m.value)}" for m in verdict.measures if m.value is not None)
    passed = sum(finding.kind is not Kind.MISSING for finding in verdict.findings)
    reads = "1 sample" if verdict.samples == 1 else f"{verdict.samples} samples"
    return f"{numbers}; {passed} checks passed in {reads}"


def _long_lines(verdict: Verdict, *, verbose: bool) -> Iterator[str]:
    for finding in verdict.findings:
        if verbose or finding.state is not State.OK:
            yield from _finding_lines(finding, verbose=verbose)
    yield from _skipped("not judged", verdict.not_judged)
    yield from _skipped("not applicable", verdict.not_applicable)


def _skipped(why: str, skips: Sequence[Skipped]) -> Iterator[str]:
    """Write a line for each reason, with all the rules that have it."""
    rules: dict[str, list[str]] = {}
    for skip in skips:
        rules.setdefault(_any_rule(skip), []).append(skip.rule)
    for reason, names in rules.items():
        yield f"[{why}] {', '.join(names)}: {reason}"


def _any_rule(skip: Skipped) -> str:
    """Return a reason without the name of the rule in it, so that rules of one reason share a line."""
    return skip.reason.replace(f"alerts.{skip.rule}.", "alerts.NAME.")


def _finding_lines(finding: Finding, *, verbose: bool) -> Iterator[str]:
    yield f"[{finding.state}] {finding.title}: {finding.message}"
    if verbose and finding.source:
        yield f"  read from: {finding.source}"
    if finding.advice:
        yield f"  try: {finding.advice}"


def _performance(measure: Measure) -> str:
    """Write ``'label'=value[unit];warning;critical;minimum;maximum``; ``U`` is a value that is not known."""
    value = "U" if measure.value is None else format_number(measure.value) + _UNIT_SYMBOLS.get(measure.unit, "")
    label = _plain(measure.label).replace("'", "''").replace("=", "_")
    return f"'{label}'={value};{measure.warning};{measure.critical};{_LIMITS.get(measure.unit, '0;')}".rstrip(";")


def _plain(text: str) -> str:
    """Keep a text from ending the line or starting performance data."""
    return _CONTROL.sub(" ", text).replace("|", "/")


def _json(value: Any) -> Any:
    """Turn enums into their values and tuples into lists."""
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items()}
    return value.value if isinstance(value, Enum) else value
