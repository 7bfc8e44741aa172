"""Make a plan, and refuse one that cannot run. Pure: reads no file and touches no machine."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.errors import PlanRefused
from trtllm_kit.findings import Finding, errors
from trtllm_kit.plan.checks.capacity import MEMORY_RULE
from trtllm_kit.plan.formats import FORMATS, Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.quantization import MADE_HERE
from trtllm_kit.plan.settle import settle
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import WeightFormat
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.precision import formats_for


def make_plan(model: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> Plan:
    """Decide every field with value, source and reason, and collect all findings.

    A plan that does not fit is a plan with an ERROR finding, whose suggestion lists the nearest changes that fit.
    Raises ``UsageError`` when the profile names a release trtkit does not know.
    """
    plan = settle(model, loaded, hardware)
    if not any(finding.rule == MEMORY_RULE for finding in errors(plan.findings)):
        return plan
    from trtllm_kit.plan.remedies import nearest_to, summary  # most plans fit

    remedies = nearest_to(plan, model, loaded, hardware)
    text = summary(remedies) or _no_remedy(plan, hardware)
    findings = tuple(_with_suggestion(finding, text) for finding in plan.findings)
    return plan.model_copy(update={"findings": findings})


def require_ok(plan: Plan) -> None:
    """Raise ``PlanRefused`` with the first ERROR finding and the number of others; do nothing without one."""
    found = errors(plan.findings)
    if not found:
        return
    first, others = found[0], len(found) - 1
    more = f" (and {others} more error{'s' if others > 1 else ''}: trtkit plan lists them)" if others else ""
    raise PlanRefused(
        f"the plan of profile {plan.profile} cannot run: {first.rule}: {first.message}{more}",
        why=first.compared,
        hint=first.suggestion,
    )


def _with_suggestion(finding: Finding, text: str) -> Finding:
    return finding.model_copy(update={"suggestion": text}) if finding.rule == MEMORY_RULE else finding


def _no_remedy(plan: Plan, hardware: Hardware) -> str:
    """Say what it would take: the weights as the memory table counts them, in the smallest format the GPU takes."""
    had = format_bytes(hardware.gpus * hardware.gpu.memory_bytes.value)
    formats = _least_formats(plan)
    least = held_by_stage(plan.model, Split(), formats, range(len(plan.model.layers))).bytes
    return (
        f"hardware with more memory than the {had} of {hardware.name}: no one or two changes fit there, "
        f"and the weights alone take {format_bytes(least)} in {formats.weights}"
    )


def _least_formats(plan: Plan) -> Formats:
    """Return the smallest formats that the GPU takes and trtkit makes, or the plan's where they cannot shrink."""
    asked = plan.quantization.formats
    if asked.passed_through or (asked.used and all(FORMATS[chosen].bits <= 4 for chosen in asked.used)):
        return asked
    taken = formats_for("weights", plan.compute_capability, plan.release.value, plan.layout.value)
    made = (chosen for chosen in _SMALLEST if chosen in taken and chosen in MADE_HERE)
    smallest: WeightFormat = next(made, "bf16")
    return replace(asked, weights=smallest, groups={})


_SMALLEST: tuple[WeightFormat, ...] = ("nvfp4", "fp8")
"""Formats whose accuracy is known to hold, the smallest first."""
