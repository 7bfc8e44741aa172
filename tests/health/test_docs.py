"""The documentation of the rules says what the rules are."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from trtllm_kit.health.builtin import BUILT_IN
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.rules import ALL, Rule

REFERENCE = (ROOT / "docs" / "reference" / "health-rules.md").read_text("utf-8")


def section(title: str) -> str:
    """Return the text under a heading of the third level."""
    match = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert match, f"no heading for {title}"
    return match[1]


@pytest.mark.parametrize("rule", shipped_rules(), ids=lambda rule: rule.name)
def test_every_rule_is_described_as_it_is(rule: Rule) -> None:
    """Each rule has a heading, and its metric, range, samples and severity are the shipped ones."""
    text = section(rule.name)
    assert f"| metric | `{rule.metric}`: {ALL[rule.metric].summary} |" in text
    assert f"| healthy | `{rule.ok}`" in text
    assert f"| samples | {rule.samples} |" in text
    assert f"| severity | {rule.severity} |" in text


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_check_has_a_heading(name: str) -> None:
    """Each built-in check is described."""
    assert section(name).strip()


def test_every_metric_is_in_the_table_with_its_unit() -> None:
    """The table of metrics has a row for each, and none that does not exist."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", REFERENCE, re.MULTILINE))
    assert {name: metric.unit.value for name, metric in ALL.items()} == rows
