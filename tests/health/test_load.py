"""Which rules a deployment has."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.health.support import SEEDS
from trtllm_kit.errors import ProfileError
from trtllm_kit.health.load import rules_for, shipped_rules
from trtllm_kit.health.ranges import Range
from trtllm_kit.health.rules import Need, Ruleset
from trtllm_kit.health.verdict import State
from trtllm_kit.spec.hardware import Figure, Gpu, Hardware
from trtllm_kit.spec.profile import DeployProfile


def hardware(kind: str) -> Hardware:
    """Make a machine with one GPU, or with the CPU that stands in for it."""
    figure = Figure(value=1.0, source="test")
    gpu = Gpu.model_validate(
        {
            "name": "g", "kind": kind, "architecture": "a", "compute_capability": 90,
            "memory_bytes": figure, "memory_bandwidth": figure, "dense_flops": {},
        }
    )  # fmt: skip
    return Hardware(
        name="cpu-rehearsal" if kind == "cpu" else "h200x1", summary="", gpu=gpu, gpus_per_node=1, nvlink_domain=1
    )


def profile(**keys: Any) -> DeployProfile:
    """Make a profile."""
    return DeployProfile.model_validate(
        {"schema_version": 1, "name": "p", "hardware": "h200x1", "trtllm_version": "1.2.1"} | keys
    )


def test_the_three_seed_alerts_are_shipped() -> None:
    """The seed alerts are shipped with their thresholds, samples and severities."""
    rules = {rule.name: (str(rule.ok), rule.samples, rule.when.value, rule.severity) for rule in SEEDS}
    assert {
        "kv-cache-usage": ("0:0.9", 1, "always", State.WARNING),
        "gpu-utilization": ("0.7:0.85", 2, "busy", State.WARNING),
        "queue-depth": ("0:10", 2, "always", State.WARNING),
    } == rules


@pytest.mark.parametrize(
    ("name", "healthy", "severity"),
    [
        ("spec-acceptance", "0.6:", State.WARNING),
        ("spec-signature", "0.000001:0.999999", State.CRITICAL),
        ("ttft-jitter", "0:0.15", State.WARNING),
        ("inter-token-gap", "0:0.3", State.WARNING),
        ("kv-pressure", "0:0.95", State.WARNING),
        ("triton-queue", "0:1", State.CRITICAL),
        ("reuse", "0.05:", State.WARNING),
        ("ttft-tail", "0:5", State.WARNING),
    ],
)
def test_the_other_thresholds_are_shipped(name: str, healthy: str, severity: State) -> None:
    """Speculation, latency, cache and queue have the thresholds that operators start from."""
    (rule,) = [rule for rule in shipped_rules() if rule.name == name]
    assert (healthy, severity) == (str(rule.ok), rule.severity)


def test_what_the_kits_own_model_always_reports_may_not_be_missing() -> None:
    """A rule whose metric trtkit's own deployment always reports is UNKNOWN without it; others need not be there."""
    assert {"kv-cache-usage", "gpu-utilization", "queue-depth", "reuse"} == {
        rule.name for rule in shipped_rules() if rule.on_missing is State.UNKNOWN
    }
    assert {State.OK, State.UNKNOWN} == {rule.on_missing for rule in shipped_rules()}
    assert all(rule.advice and rule.summary for rule in shipped_rules())


def test_the_queue_rule_advises_to_scale_out() -> None:
    """The queue's advice begins with scaling out."""
    (rule,) = [rule for rule in shipped_rules() if rule.name == "queue-depth"]
    assert rule.advice.startswith("Scale out: add a replica")


def test_without_a_profile_every_rule_stands() -> None:
    """Nothing known of the deployment leaves every shipped rule that is not off."""
    shipped = tuple(rule for rule in shipped_rules() if rule.enabled)
    assert shipped == tuple(replace(rule, if_missing="") for rule in rules_for().rules)


def test_only_a_guess_advises_to_say_what_the_server_has() -> None:
    """Without profile and hardware the GPU rules advise to give one; with either it is known, and they do not."""

    def advised(ruleset: Ruleset) -> list[str]:
        return [rule.name for rule in ruleset.rules if "give --profile or --repository" in rule.if_missing]

    assert [rule.name for rule in shipped_rules() if rule.needs is Need.GPU and rule.enabled] == advised(rules_for())
    assert [] == advised(rules_for(profile())) + advised(rules_for(hardware=hardware("gpu")))


def test_a_rehearsal_has_no_gpu_rules() -> None:
    """On a machine without GPUs each GPU rule is listed as not applicable, with the reason."""
    ruleset = rules_for(profile(), hardware("cpu"))
    assert {None} == {rule.needs for rule in ruleset.rules}
    reasons = {skip.rule: skip.reason for skip in ruleset.not_applicable}
    assert "hardware cpu-rehearsal has no GPU" == reasons["gpu-utilization"] == reasons["gpu-ecc"]


@pytest.mark.parametrize("runtime", ["reference", "simulated"])
def test_a_runtime_on_the_cpu_has_no_gpu_rules(runtime: str) -> None:
    """A runtime that computes on the CPU cannot be judged by its GPUs, whatever the hardware."""
    reasons = {skip.rule: skip.reason for skip in rules_for(profile(runtime=runtime), hardware("gpu")).not_applicable}
    assert f"runtime {runtime} computes on the CPU" == reasons["gpu-utilization"]


def test_the_transformers_runtime_is_judged_by_its_gpus() -> None:
    """It computes on a GPU as TensorRT-LLM does."""
    ruleset = rules_for(profile(runtime="transformers"), hardware("gpu"))
    assert "gpu-utilization" in {rule.name for rule in ruleset.rules}


def test_a_gpu_deployment_has_every_rule() -> None:
    """With a GPU, TensorRT-LLM and speculation only what is shipped off is left out."""
    speculation = {"kind": "ngram", "draft_tokens": 3}
    ruleset = rules_for(profile(speculation=speculation), hardware("gpu"))
    off = {rule.name for rule in shipped_rules() if not rule.enabled}
    assert off == {skip.rule for skip in ruleset.not_applicable}
    assert len(shipped_rules()) == len(ruleset.rules) + len(off)


def test_without_speculation_its_rules_do_not_apply() -> None:
    """A profile without drafts has no rule of their acceptance."""
    reasons = {skip.rule: skip.reason for skip in rules_for(profile()).not_applicable}
    assert "the profile has no speculative decoding" == reasons["spec-acceptance"] == reasons["spec-signature"]


def test_a_profile_switches_on_what_is_shipped_off() -> None:
    """``enabled: true`` makes a rule that only the operator can judge one of the rules."""
    alerts = {"reuse": {"enabled": True, "ok": "0.2:"}}
    (rule,) = [rule for rule in rules_for(profile(alerts=alerts)).rules if rule.name == "reuse"]
    assert "0.2:" == str(rule.ok)


def test_a_profile_adds_an_alert_of_its_own() -> None:
    """With a metric and a range a new name is a new rule; what it leaves out is the mildest."""
    alerts = {"cold-gpus": {"metric": "gpu_temperature", "ok": "30:", "samples": 3, "clear": "35:"}}
    (rule,) = [rule for rule in rules_for(profile(alerts=alerts)).rules if rule.name == "cold-gpus"]
    assert ("gpu_temperature", Range(30, math.inf), 3) == (rule.metric, rule.ok, rule.samples)
    assert (State.WARNING, State.UNKNOWN, Range(35, math.inf)) == (rule.severity, rule.on_missing, rule.clear)


def test_a_profile_changes_the_keys_it_gives() -> None:
    """ok, severity and samples of the profile replace the shipped ones; keys left out stay."""
    alerts = {"queue-depth": {"ok": ":3", "severity": "critical"}, "kv-cache-usage": {"samples": 4}}
    rules = {rule.name: rule for rule in rules_for(profile(alerts=alerts)).rules}
    assert (Range(0, 3), State.CRITICAL, 2) == (
        rules["queue-depth"].ok, rules["queue-depth"].severity, rules["queue-depth"].samples
    )  # fmt: skip
    assert (Range(0, 0.9), State.WARNING, 4) == (
        rules["kv-cache-usage"].ok, rules["kv-cache-usage"].severity, rules["kv-cache-usage"].samples
    )  # fmt: skip


def test_a_rule_that_is_switched_off_is_listed() -> None:
    """A rule that the profile switches off does not vanish from the report."""
    ruleset = rules_for(profile(alerts={"queue-depth": {"enabled": False}}), hardware("gpu"))
    reasons = {skip.rule: skip.reason for skip in ruleset.not_applicable}
    assert "alerts.queue-depth.enabled" in reasons["queue-depth"]


def test_wrong_alerts_are_refused_together_with_place_and_suggestion() -> None:
    """An unknown name gets a suggestion, a wrong range its text, each with file and line."""
    alerts = {"que-depth": {"samples": 1}, "kv-cache-usage": {"ok": "90%"}, "zzz": {}}
    origins = {"alerts.que-depth": "p.yaml:7", "alerts.kv-cache-usage.ok": "p.yaml:9"}
    with pytest.raises(ProfileError) as raised:
        rules_for(profile(alerts=alerts), None, origins)
    first, second, third = raised.value.problems
    assert "p.yaml:7: alerts.que-depth: no such rule; did you mean queue-depth?" == first
    assert second.startswith("p.yaml:9: alerts.kv-cache-usage.ok: '90%' is not a range")
    assert third.endswith(f"there are {', '.join(rule.name for rule in shipped_rules())}")
