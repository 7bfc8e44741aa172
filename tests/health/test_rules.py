"""The rule language."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ProfileError
from trtllm_kit.health.ranges import Range
from trtllm_kit.health.rules import Need, Rule, Ruleset, When, read_rules
from trtllm_kit.health.snapshot import Unit
from trtllm_kit.health.verdict import State

GOOD: dict[str, Any] = {
    "metric": "queue_depth", "ok": "0:10", "severity": "critical", "samples": 2, "when": "busy",
    "on_missing": "unknown", "needs": "gpu", "summary": "s", "advice": "do\n this",
}  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    """Make a document with one rule, changed; ``...`` takes a key out."""
    entry = {key: value for key, value in (GOOD | changes).items() if value is not ...}
    return {"schema_version": 1, "rules": {"r": entry}}


def test_every_key_is_read() -> None:
    """A rule holds what its keys say, its unit is the metric's."""
    (rule,) = read_rules(document(), "f.yaml")
    assert (
        Rule("r", "queue_depth", Range(0, 10), State.CRITICAL, 2, When.BUSY, State.UNKNOWN, Need.GPU, "s", "do this")
        == rule
    )
    assert Unit.COUNT is rule.unit


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metric": "queue"}, "rules.r.metric: 'queue' is not one of kv_cache_usage"),
        ({"ok": 0.9}, "rules.r.ok: 0.9 is not a range in quotes"),
        ({"ok": "10:5"}, "rules.r.ok: '10:5' ends at 5 before it starts at 10"),
        ({"severity": "fatal"}, "rules.r.severity: 'fatal' is not one of warning, critical"),
        ({"severity": ["warning"]}, "rules.r.severity: ['warning'] is not one of"),
        ({"samples": 0}, "rules.r.samples: 0 is not a whole number"),
        ({"samples": True}, "rules.r.samples: True is not a whole number"),
        ({"when": None}, "rules.r.when: None is not one of always, busy"),
        ({"on_missing": ...}, "rules.r.on_missing: missing"),
        ({"needs": "fpga"}, "rules.r.needs: 'fpga' is not one of gpu, speculation, null"),
        ({"colour": "red"}, "rules.r.colour: unknown key"),
    ],
)
def test_a_wrong_key_is_named(changes: dict[str, Any], expected: str) -> None:
    """Each problem has file, rule, key, the value found and the values allowed."""
    with pytest.raises(ProfileError) as raised:
        read_rules(document(**changes), "f.yaml")
    assert 1 == len(raised.value.problems)
    assert f"f.yaml: {expected}" in raised.value.problems[0]


def test_all_problems_come_at_once() -> None:
    """Three wrong keys are three problems."""
    with pytest.raises(ProfileError) as raised:
        read_rules(document(metric="x", samples=-1, on_missing=...), "f.yaml")
    assert 3 == len(raised.value.problems)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_else_is_refused_in_the_same_way(garbage: Any) -> None:
    """Whatever a document holds, it is rules or a ProfileError."""
    for made in (garbage, {"schema_version": 1, "rules": garbage}, {"schema_version": 1, "rules": {"r": garbage}}):
        if made == {"schema_version": 1, "rules": {}}:
            continue
        with pytest.raises(ProfileError):
            read_rules(made, "f.yaml")


def test_two_samples_are_the_least() -> None:
    """A ruleset asks for as many samples as its most patient rule, and for two to see progress."""
    (rule,) = read_rules(document(samples=5), "f.yaml")
    assert 5 == Ruleset((rule,)).samples_needed
    assert 2 == Ruleset(()).samples_needed
