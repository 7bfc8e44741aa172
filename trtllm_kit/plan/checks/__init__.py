"""The checks of a plan: small rules with stable ids, all run, their findings collected before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from trtllm_kit.findings import Finding
from trtllm_kit.plan.checks import (
    build_options,
    built,
    capacity,
    context_parallel,
    data_parallel,
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

__all__ = ["RULES", "Case", "Rule", "in_order", "run_checks"]

RULES: tuple[Rule, ...] = (
    *split.RULES,
    *data_parallel.RULES,
    *context_parallel.RULES,
    *precision.RULES,
    *shapes.RULES,
    *making.RULES,
    *model_formats.RULES,
    *release.RULES,
    *capacity.RULES,
    *lengths.RULES,
    *speculation.RULES,
    *engine.RULES,
    *build_options.RULES,
    *built.RULES,
    *serving.RULES,
    *environment.RULES,
)
"""Every rule, in the order their findings are shown."""
_ORDER = ("error", "warning", "info")


def run_checks(case: Case) -> tuple[Finding, ...]:
    """Run every rule and return what they found, errors first."""
    return in_order(finding for rule in RULES for finding in rule.run(case))


def in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings as they are shown: errors first, otherwise as they came."""
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))
