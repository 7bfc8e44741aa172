"""The checks of a plan: small rules with stable ids, all run, their findings collected before anything is written."""

from __future__ import annotations

from trtllm_kit.findings import Finding
from trtllm_kit.plan.checks import (
    capacity,
    engine,
    environment,
    lengths,
    making,
    model_formats,
    precision,
    release,
    serving,
    shapes,
    speculation,
    split,
)
from trtllm_kit.plan.checks.case import Case, Rule

__all__ = ["RULES", "Case", "Rule", "run_checks"]

RULES: tuple[Rule, ...] = (
    *split.RULES,
    *precision.RULES,
    *shapes.RULES,
    *making.RULES,
    *model_formats.RULES,
    *release.RULES,
    *capacity.RULES,
    *lengths.RULES,
    *speculation.RULES,
    *engine.RULES,
    *serving.RULES,
    *environment.RULES,
)
"""Every rule, in the order their findings are shown."""
_ORDER = ("error", "warning", "info")


def run_checks(case: Case) -> tuple[Finding, ...]:
    """Run every rule and return what they found, errors first."""
    found = [finding for rule in RULES for finding in rule.run(case)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))
