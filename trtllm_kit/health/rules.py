"""The rule language: what healthy means for one metric, read strictly from plain data. Pure.

A document holds ``schema_version: 1`` and ``rules``, a mapping from name to the keys of ``Rule``. It comes from
YAML today; nothing here knows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from trtllm_kit.errors import ProfileError
from trtllm_kit.health.changes import CHANGES, Change
from trtllm_kit.health.metrics import METRICS, Metric
from trtllm_kit.health.ranges import Range, parse_range
from trtllm_kit.health.snapshot import Unit
from trtllm_kit.health.verdict import Skipped, State
from trtllm_kit.light import dataclass

T = TypeVar("T")


class When(StrEnum):
    """When a rule asks."""

    ALWAYS = "always"
    BUSY = "busy"
    """Only in samples in which a request is active."""
    QUEUED = "queued"
    """Only in samples in which a request waits in front of the executor."""
    CROWDED = "crowded"
    """Only in samples in which four or more requests are active."""


class Need(StrEnum):
    """What a deployment must have for a rule to make sense."""

    GPU = "gpu"
    SPECULATION = "speculation"


ALL: Mapping[str, Metric | Change] = {**METRICS, **CHANGES}
"""Every metric that a rule may name."""
WINDOW_SECONDS = 300


@dataclass(frozen=True)
class Rule:
    """What healthy means for one metric."""

    name: str
    metric: str
    """A name in ``ALL``."""
    ok: Range
    """The healthy values."""
    severity: State
    """WARNING or CRITICAL: the state when the value is outside."""
    samples: int
    """Consecutive samples outside before it counts."""
    when: When
    on_missing: State
    """The state when the page does not have the metric; values that are there and wrong are always UNKNOWN."""
    needs: Need | None
    summary: str
    advice: str
    """What to do when it fires."""
    window: int = WINDOW_SECONDS
    """Of a metric of two moments: seconds between them, as far as they are remembered."""
    clear: Range | None = None
    """Once fired, the values that end it; None: the healthy ones."""
    evidence: tuple[str, ...] = ()
    """Metrics that are shown beside the value when it fires."""
    runbook: str = ""
    """Address of what to do at length."""
    enabled: bool = True
    """False: it waits for a profile to switch it on, because only the operator knows whether it makes sense."""
    if_missing: str = ""
    """What more to advise when the page lacks the metric; not a key of the document: it depends on what was asked."""

    @property
    def unit(self) -> Unit:
        """Unit of the metric and of the range."""
        return ALL[self.metric].unit

    @property
    def change(self) -> Change | None:
        """The metric, when it is one of two moments."""
        return CHANGES.get(self.metric)


@dataclass(frozen=True)
class Ruleset:
    """The rules that a deployment has, and those that it does not have."""

    rules: tuple[Rule, ...]
    not_applicable: tuple[Skipped, ...] = ()

    @property
    def samples_needed(self) -> int:
        """Samples after which every rule can be decided; at least two, for one cannot show progress."""
        return max([2, *(rule.samples for rule in self.rules if rule.change is None)])


_SEVERITIES = {"warning": State.WARNING, "critical": State.CRITICAL}
_ON_MISSING = {"ok": State.OK, "unknown": State.UNKNOWN, "warning": State.WARNING, "critical": State.CRITICAL}
_KEYS = ("metric", "ok", "severity", "samples", "when", "on_missing", "needs", "summary", "advice")
_OPTIONAL = frozenset(("window", "clear", "evidence", "runbook", "enabled"))


def read_rules(document: Any, where: str) -> tuple[Rule, ...]:
    """Read a rules document; raises ``ProfileError`` with every problem at once, each with its key."""
    problems: list[str] = []
    rules = []
    entries = document.get("rules") if isinstance(document, Mapping) else None
    if not isinstance(entries, Mapping) or document.get("schema_version") != 1:
        problems.append(f"{where}: a rules document has schema_version: 1 and rules:, a mapping from name to rule")
        entries = {}
    for name, entry in entries.items():
        rules.append(_Reader(f"{where}: rules.{name}", entry, problems).rule(str(name)))
    if problems:
        raise ProfileError(
            f"the rules in {where} cannot be used",
            why=f"{len(problems)} problem{'s' if len(problems) > 1 else ''}",
            hint="correct the keys named above; docs/reference/health-rules.md lists what each may hold",
            problems=tuple(problems),
        )
    return tuple(rules)


class _Reader:
    """Takes one rule apart, noting every problem; what it returns after a problem is never used."""

    def __init__(self, where: str, entry: Any, problems: list[str]) -> None:
        self.where = where
        self.problems = problems
        self.entry: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        if not isinstance(entry, Mapping):
            problems.append(f"{where}: {entry!r} is not a mapping")
            return
        odd = sorted(({str(key) for key in entry} - _OPTIONAL) ^ set(_KEYS))
        problems.extend(f"{where}.{key}: {'unknown key' if key in entry else 'missing'}" for key in odd)

    def rule(self, name: str) -> Rule:
        """Read every key."""
        return Rule(
            name=name,
            metric=self.choice("metric", {known: known for known in ALL}),
            ok=self.range("ok"),
            severity=self.choice("severity", _SEVERITIES),
            samples=self.count("samples"),
            when=self.choice("when", {when.value: when for when in When}),
            on_missing=self.choice("on_missing", _ON_MISSING),
            needs=self.choice("needs", {need.value: need for need in Need} | {None: None}),
            summary=str(self.entry.get("summary", "")),
            advice=" ".join(str(self.entry.get("advice", "")).split()),
            window=self.count("window") if "window" in self.entry else WINDOW_SECONDS,
            clear=self.clear(),
            evidence=self.evidence(),
            runbook=self.text("runbook"),
            enabled=self.flag("enabled"),
        )

    def clear(self) -> Range | None:
        """Read the range that ends what has fired; it lies within the healthy one."""
        if self.entry.get("clear") is None:
            return None
        clear, healthy = self.range("clear"), self.range("ok")
        if not (healthy.contains(clear.start) and healthy.contains(clear.end)) and not healthy.inverted:
            self.wrong("clear", str(clear), f"within the healthy {healthy}", None)
        return clear

    def evidence(self) -> tuple[str, ...]:
        """Read the names of metrics."""
        names = self.entry.get("evidence", [])
        if isinstance(names, list) and all(isinstance(name, str) and name in ALL for name in names):
            return tuple(names)
        return self.wrong("evidence", names, f"a list of metrics: {', '.join(ALL)}", ())

    def text(self, key: str) -> str:
        """Read a text that may be left out."""
        value = self.entry.get(key, "")
        return value if isinstance(value, str) else self.wrong(key, value, "a text", "")

    def flag(self, key: str) -> bool:
        """Read a yes or no that may be left out; left out is yes."""
        value = self.entry.get(key, True)
        return value if isinstance(value, bool) else self.wrong(key, value, "true or false", True)

    def choice(self, key: str, allowed: Mapping[Any, T]) -> T:
        """Read one of the allowed values."""
        value = self.entry.get(key)
        if (value is None or isinstance(value, str)) and value in allowed:
            return allowed[value]
        known = ", ".join("null" if one is None else one for one in allowed)
        return self.wrong(key, value, f"one of {known}", next(iter(allowed.values())))

    def range(self, key: str) -> Range:
        """Read a Nagios range."""
        value = self.entry.get(key)
        if not isinstance(value, str):
            return self.wrong(key, value, 'a range in quotes, e.g. "0:0.90" (YAML reads it as a number without)', _ANY)
        try:
            return parse_range(value)
        except ValueError as error:
            self.problems.append(f"{self.where}.{key}: {error}")
            return _ANY

    def count(self, key: str) -> int:
        """Read a number of samples."""
        value = self.entry.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        return self.wrong(key, value, "a whole number, 1 or more", 1)

    def wrong(self, key: str, value: Any, wanted: str, instead: T) -> T:
        """Note a wrong value of a key that is there."""
        if key in self.entry:
            self.problems.append(f"{self.where}.{key}: {value!r} is not {wanted}")
        return instead


_ANY = Range(0.0, 0.0)
