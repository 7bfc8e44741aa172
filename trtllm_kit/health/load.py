"""Which rules a deployment has: the shipped ones, changed by its profile, less those its hardware cannot have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from trtllm_kit.errors import ProfileError
from trtllm_kit.health.ranges import parse_range
from trtllm_kit.health.rules import Need, Rule, Ruleset, read_rules
from trtllm_kit.health.verdict import Skipped, State
from trtllm_kit.resources import package_file
from trtllm_kit.shipped_yaml import parse_yaml, read_shipped
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.profile import AlertOverride, DeployProfile, Runtime
from trtllm_kit.spec.yaml_errors import did_you_mean

_IF_MISSING: Mapping[Need | None, str] = MappingProxyType(
    {Need.GPU: "; a server without a GPU has none: give --profile or --repository, which say what the server has"}
)
_NO_ORIGINS: Mapping[str, str] = MappingProxyType({})


RULES = package_file("health", "rules.yaml")


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules of ``rules.yaml``, by name."""
    rules = read_rules(read_shipped(RULES, parse_yaml), RULES.name)
    return tuple(sorted(rules, key=lambda rule: rule.name))


def rules_for(
    profile: DeployProfile | None = None,
    hardware: Hardware | None = None,
    origins: Mapping[str, str] = _NO_ORIGINS,
    runtime: Runtime = "tensorrt_llm",
) -> Ruleset:
    """Return the rules of a deployment and, with the reason, those it does not have.

    Without a profile no rule is changed and ``runtime`` says what serves; without hardware it is taken to have GPUs.
    ``origins`` maps dotted keys to ``file:line`` for messages. Raises ``ProfileError`` naming every wrong key under
    ``alerts``.
    """
    alerts = profile.alerts if profile is not None else {}
    rules = _changed(shipped_rules(), alerts, origins)
    without = _without(hardware, profile.runtime if profile is not None else runtime)
    judged = []
    skipped = []
    for rule in rules:
        if rule.name in alerts and alerts[rule.name].enabled is False:
            skipped.append(Skipped(rule.name, f"the profile switches it off (alerts.{rule.name}.enabled)"))
        elif rule.needs in without:
            skipped.append(Skipped(rule.name, without[rule.needs]))
        elif profile is None and hardware is None:
            judged.append(replace(rule, if_missing=_IF_MISSING.get(rule.needs, "")))
        else:
            judged.append(rule)
    return Ruleset(tuple(judged), tuple(skipped))


def _without(hardware: Hardware | None, runtime: Runtime) -> dict[Need | None, str]:
    """Say what the deployment does not have, and why."""
    reasons: dict[Need | None, str] = {Need.SPECULATION: "the profile has no speculative decoding"}
    if hardware is not None and hardware.is_rehearsal:
        reasons[Need.GPU] = f"hardware {hardware.name} has no GPU"
    elif runtime != "tensorrt_llm":
        reasons[Need.GPU] = f"runtime {runtime} computes on the CPU"
    return reasons


def _changed(
    rules: tuple[Rule, ...], alerts: Mapping[str, AlertOverride], origins: Mapping[str, str]
) -> tuple[Rule, ...]:
    """Apply the profile's changes, collecting every problem."""
    by_name = {rule.name: rule for rule in rules}
    problems = []
    for name, change in alerts.items():
        place = origins.get(f"alerts.{name}", "profile")
        if name not in by_name:
            known = f"; there are {', '.join(sorted(by_name))}"
            problems.append(f"{place}: alerts.{name}: no such rule{did_you_mean(name, by_name) or known}")
            continue
        try:
            by_name[name] = _override(by_name[name], change)
        except ValueError as error:
            place = origins.get(f"alerts.{name}.ok", place)
            problems.append(f"{place}: alerts.{name}.ok: {error}")
    if problems:
        raise ProfileError(
            "the profile's alerts cannot be used",
            why=f"{len(problems)} problem{'s' if len(problems) > 1 else ''}",
            hint="correct the keys named above; docs/reference/health-rules.md lists the rules",
            problems=tuple(problems),
        )
    return tuple(by_name.values())


def _override(rule: Rule, change: AlertOverride) -> Rule:
    """Return the rule with the keys that the profile gives."""
    return replace(
        rule,
        ok=rule.ok if change.ok is None else parse_range(change.ok),
        severity=rule.severity if change.severity is None else State[change.severity.upper()],
        samples=rule.samples if change.samples is None else change.samples,
    )
