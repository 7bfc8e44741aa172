"""A verdict walked backwards: from the state to the number, the rule it was held to, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.health.rules import Rule, Ruleset, When
from trtllm_kit.health.verdict import Finding, State, Verdict
from trtllm_kit.printable import printable

_WHEN = {
    When.ALWAYS: "",
    When.BUSY: ", while a request is active",
    When.QUEUED: ", while a request waits",
    When.CROWDED: ", while four or more requests are active",
}


def explained(verdict: Verdict, ruleset: Ruleset) -> str:
    """Write how each finding came about, the gravest first; those that are OK in one line each."""
    rules = {rule.name: rule for rule in ruleset.rules}
    lines = [f"{verdict.name or verdict.url} is {verdict.state}: the gravest of {len(verdict.findings)} findings"]
    for finding in verdict.findings:
        lines.extend(_walked(finding, rules.get(finding.rule)))
    lines.extend(f"{skip.rule}: not judged: {skip.reason}" for skip in verdict.not_judged)
    lines.extend(f"{skip.rule}: not applicable: {skip.reason}" for skip in verdict.not_applicable)
    return "\n".join(map(printable, lines))


def _walked(finding: Finding, rule: Rule | None) -> Iterator[str]:
    yield f"{finding.title}: {finding.state}: {finding.message}"
    if finding.state is State.OK:
        return
    if finding.source:
        yield f"  read from  {finding.source}"
    if rule is not None:
        yield f"  number     {rule.metric}, {rule.unit.value}{_over(rule)}"
        ends = f"; once fired it ends within {rule.clear}" if rule.clear is not None else ""
        fires = f"{rule.samples} samples outside are {rule.severity}{ends}"
        yield f"  rule       healthy is {rule.ok}{_WHEN[rule.when]}; {fires}"
        yield f"  missing    is {rule.on_missing}"
        yield f"  meaning    {rule.summary}"
    yield f"  because    {finding.kind.value}" + (f", outside in {finding.run} samples" if finding.run else "")
    if finding.advice:
        yield f"  try        {finding.advice}"


def _over(rule: Rule) -> str:
    return f", over {rule.window} s" if rule.change is not None else ""
