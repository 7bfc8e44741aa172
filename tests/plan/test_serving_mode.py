"""How the servers of an engine are started: a leader and its ranks, or an orchestrator with ranks of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.findings import Severity
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import has_draft, instances, obstacle, orchestrated, spawns, with_orchestrator
from trtllm_kit.plan.settle import settle


def planned(environment: dict[str, str], changes: dict[str, Any] | None = None, *, draft: bool = False) -> Plan:
    """Plan an engine; ``draft`` puts one of a draft model beside it."""
    asked = {"toolchain": "trtllm-build", "environment": environment, "parallelism.tensor": 2, **(changes or {})}
    plan = settle(llama_8b(), profile(asked), hardware(8))
    assert plan.build is not None
    ranks = plan.parallelism.tensor.model_copy(update={"value": 1})
    return plan.model_copy(update={"build": plan.build.model_copy(update={"draft_ranks": ranks})}) if draft else plan


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, (False, True, 1)),
        ({"TRTLLM_ORCHESTRATOR": "0"}, (False, True, 1)),
        ({"TRTLLM_ORCHESTRATOR": "1"}, (True, True, 3)),
        ({"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}, (True, False, 3)),
    ],
)
def test_the_environment_says_the_mode(environment: dict[str, str], found: tuple[bool, bool, int]) -> None:
    """An orchestrator's server has every replica as an instance; a leader's has one."""
    plan = planned(environment, {"parallelism.replicas": 3})

    assert found == (orchestrated(plan), spawns(plan), instances(plan))


def test_a_draft_engine_is_given_an_orchestrator() -> None:
    """By a rule that says why, unless the profile decides; a plan without a draft keeps its environment."""
    given = with_orchestrator(planned({}, draft=True))["TRTLLM_ORCHESTRATOR"]

    assert ("1", "rule") == (given.value, given.source)
    assert "draft" in given.reason
    assert "0" == with_orchestrator(planned({"TRTLLM_ORCHESTRATOR": "0"}, draft=True))["TRTLLM_ORCHESTRATOR"].value
    assert {} == with_orchestrator(planned({}))
    assert not has_draft(planned({}))


def test_a_draft_engine_against_the_profiles_will_is_an_obstacle() -> None:
    """The profile says leader, whose ranks are those of one engine."""
    found = obstacle(planned({"TRTLLM_ORCHESTRATOR": "0"}, draft=True))

    assert found is not None
    assert "TRTLLM_ORCHESTRATOR=0" in found.compared
    assert obstacle(planned({"TRTLLM_ORCHESTRATOR": "1"}, draft=True)) is None


def test_an_obstacle_is_an_error_of_the_plan() -> None:
    """So what a plan lets through, a repository serves."""
    waits = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}
    plan = planned(waits, {"parallelism.replicas": 2})

    assert obstacle(plan) is not None
    assert [Severity.ERROR] == [one.severity for one in plan.findings if one.rule == "PF29"]
