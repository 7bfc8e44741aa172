"""Which rules a deployment has: the shipped ones, changed by its profile, less those its hardware cannot have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from trtllm_kit.errors import ProfileError
from trtllm_kit.health.rules import Need, Rule, Ruleset, read_rules
from trtllm_kit.health.verdict import Skipped
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
    without = _without(profile, hardware, profile.runtime if profile is not None else runtime)
    judged = []
    skipped = []
    for rule in rules:
        if rule.name in alerts and alerts[rule.name].enabled is False:
            skipped.append(Skipped(rule.name, f"the profile switches it off (alerts.{rule.name}.enabled)"))
        elif not rule.enabled:
            skipped.append(Skipped(rule.name, f"off until a profile switches it on (alerts.{rule.name}.enabled)"))
        elif rule.needs in without:
            skipped.append(Skipped(rule.name, without[rule.needs]))
        elif profile is None and hardware is None:
            judged.append(replace(rule, if_missing=_IF_MISSING.get(rule.needs, "")))
        else:
            judged.append(rule)
    return Ruleset(tuple(judged), tuple(skipped))


def _without(profile: DeployProfile | None, hardware: Hardware | None, runtime: Runtime) -> dict[Need | None, str]:
    """Say what the deployment does not have, and why."""
    reasons: dict[Need | None, str] = {}
    if profile is not None and profile.speculation is None:
        reasons[Need.SPECULATION] = "the profile has no speculative decoding"
    if hardware is not None and hardware.is_rehearsal:
        reasons[Need.GPU] = f"hardware {hardware.name} has no GPU"
    elif runtime in ("reference", "simulated"):
        reasons[Need.GPU] = f"runtime {runtime} computes on the CPU"
    return reasons


def _changed(
    rules: tuple[Rule, ...], alerts: Mapping[str, AlertOverride], origins: Mapping[str, str]
) -> tuple[Rule, ...]:
    """Apply the profile's changes, collecting every problem; the changed document is read as any other."""
    by_name = {rule.name: rule for rule in rules}
    shipped = read_shipped(RULES, parse_yaml)["rules"] if alerts else {}
    problems: list[str] = []
    for name, change in alerts.items():
        place = origins.get(f"alerts.{name}", "profile")
        if name not in by_name and change.metric is None:
            known = f"; there are {', '.join(sorted(by_name))}"
            problems.append(f"{place}: alerts.{name}: no such rule{did_you_mean(name, by_name) or known}")
            continue
        entry = dict(shipped.get(name, _NEW)) | change.model_dump(exclude_none=True)
        try:
            (by_name[name],) = read_rules({"schema_version": 1, "rules": {name: entry}}, place)
        except ProfileError as error:
            problems.extend(_placed(problem, name, place, origins) for problem in error.problems)
    if problems:
        raise ProfileError(
            "the profile's alerts cannot be used",
            why=f"{len(problems)} problem{'s' if len(problems) > 1 else ''}",
            hint="correct the keys named above; docs/reference/health-rules.md lists the rules",
            problems=tuple(problems),
        )
    return tuple(sorted(by_name.values(), key=lambda rule: rule.name))


_NEW: Mapping[str, Any] = MappingProxyType(
    {"severity": "warning", "samples": 1, "when": "always", "on_missing": "unknown", "needs": None}
    | {"summary": "An alert of the profile.", "advice": "What the profile's alerts say of it."}
)
"""What a profile's own alert says where it says nothing."""


def _placed(problem: str, name: str, place: str, origins: Mapping[str, str]) -> str:
    """Name the key of the profile instead of the key of the document that was made of it."""
    rest = problem.removeprefix(f"{place}: rules.{name}.")
    key = rest.partition(":")[0]
    return f"{origins.get(f'alerts.{name}.{key}', place)}: alerts.{name}.{rest}"
