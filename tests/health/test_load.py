"""Which rules a deployment has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trtllm_kit.errors import ProfileError
from trtllm_kit.health.load import rules_for, shipped_rules
from trtllm_kit.health.ranges import Range
from trtllm_kit.health.rules import Ruleset
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
    """The shipped rules are the three seed alerts with their thresholds, samples and severities."""
    rules = {rule.name: (str(rule.ok), rule.samples, rule.when.value, rule.severity) for rule in shipped_rules()}
    assert {
        "kv-cache-usage": ("0:0.9", 1, "always", State.WARNING),
        "gpu-utilization": ("0.7:0.85", 2, "busy", State.WARNING),
        "queue-depth": ("0:10", 2, "always", State.WARNING),
    } == rules


def test_no_shipped_rule_takes_missing_for_healthy() -> None:
    """Every shipped rule is UNKNOWN when its metric is missing, and says what to do when it fires."""
    assert {State.UNKNOWN} == {rule.on_missing for rule in shipped_rules()}
    assert all(rule.advice and rule.summary for rule in shipped_rules())


def test_the_queue_rule_advises_to_scale_out() -> None:
    """The queue's advice begins with scaling out."""
    (rule,) = [rule for rule in shipped_rules() if rule.name == "queue-depth"]
    assert rule.advice.startswith("Scale out: add a replica")


def test_without_a_profile_every_rule_stands() -> None:
    """Nothing known of the deployment leaves every shipped rule."""
    assert shipped_rules() == tuple(replace(rule, if_missing="") for rule in rules_for().rules)


def test_only_a_guess_advises_to_say_what_the_server_has() -> None:
    """Without profile and hardware the GPU rule advises to give one; with either it is known, and does not."""

    def advised(ruleset: Ruleset) -> list[str]:
        return [rule.name for rule in ruleset.rules if "give --profile or --repository" in rule.if_missing]

    assert ["gpu-utilization"] == advised(rules_for())
    assert [] == advised(rules_for(profile())) + advised(rules_for(hardware=hardware("gpu")))


def test_a_rehearsal_has_no_gpu_rules() -> None:
    """On a machine without GPUs the GPU rule is listed as not applicable, with the reason."""
    ruleset = rules_for(profile(), hardware("cpu"))
    assert ["kv-cache-usage", "queue-depth"] == [rule.name for rule in ruleset.rules]
    assert [("gpu-utilization", "hardware cpu-rehearsal has no GPU")] == [
        (skip.rule, skip.reason) for skip in ruleset.not_applicable
    ]


@pytest.mark.parametrize("runtime", ["reference", "simulated"])
def test_a_runtime_on_the_cpu_has_no_gpu_rules(runtime: str) -> None:
    """A runtime that computes on the CPU cannot be judged by its GPUs, whatever the hardware."""
    (skip,) = rules_for(profile(runtime=runtime), hardware("gpu")).not_applicable
    assert ("gpu-utilization", f"runtime {runtime} computes on the CPU") == (skip.rule, skip.reason)


def test_a_gpu_deployment_has_every_rule() -> None:
    """With a GPU and TensorRT-LLM nothing is left out."""
    ruleset = rules_for(profile(), hardware("gpu"))
    assert (3, ()) == (len(ruleset.rules), ruleset.not_applicable)


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
    assert ["queue-depth"] == [skip.rule for skip in ruleset.not_applicable]
    assert "alerts.queue-depth.enabled" in ruleset.not_applicable[0].reason


def test_wrong_alerts_are_refused_together_with_place_and_suggestion() -> None:
    """An unknown name gets a suggestion, a wrong range its text, each with file and line."""
    alerts = {"que-depth": {"samples": 1}, "kv-cache-usage": {"ok": "90%"}, "zzz": {}}
    origins = {"alerts.que-depth": "p.yaml:7", "alerts.kv-cache-usage.ok": "p.yaml:9"}
    with pytest.raises(ProfileError) as raised:
        rules_for(profile(alerts=alerts), None, origins)
    first, second, third = raised.value.problems
    assert "p.yaml:7: alerts.que-depth: no such rule; did you mean queue-depth?" == first
    assert second.startswith("p.yaml:9: alerts.kv-cache-usage.ok: '90%' is not a range")
    assert third.endswith("there are gpu-utilization, kv-cache-usage, queue-depth")
