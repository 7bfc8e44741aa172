"""How the servers of an engine are started: a leader and its ranks, or an orchestrator with ranks of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.findings import Severity
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import (
    device_sets,
    has_draft,
    instances,
    obstacle,
    orchestrated,
    spawns,
    with_orchestrator,
)
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


def of_llm_api(**keys: Any) -> Plan:
    """Plan a server of the LLM API on a node of eight GPUs; ``keys`` are those of ``serve`` and parallelism."""
    sizes = {"parallelism.tensor": keys.pop("tensor", 1), "parallelism.replicas": keys.pop("replicas", 1)}
    loaded = profile(sizes | {f"serve.{name}": value for name, value in keys.items()})
    return make_plan(llama_8b(), loaded, hardware(8))


def test_instances_of_the_llm_api_have_gpus_of_their_own() -> None:
    """As many as the profile says, whatever the replicas; the environment of engines changes nothing."""
    plan = of_llm_api(tensor=2, replicas=4, instances=2)

    assert (2, "0,1;2,3", None) == (instances(plan), device_sets(plan), obstacle(plan))
    assert 1 == instances(settle(llama_8b(), profile({"environment": {"TRTLLM_ORCHESTRATOR": "1"}}), hardware(8)))


@pytest.mark.parametrize(("replicas", "each", "way_out"), [(4, 3, "serve.instances: 2"), (1, 2, "serve.instances: 1")])
def test_replicas_fill_servers_of_as_many_instances(replicas: int, each: int, way_out: str) -> None:
    """The numbers, and the most instances that fit them."""
    found = obstacle(of_llm_api(replicas=replicas, instances=each))

    assert found is not None
    assert (f"parallelism.replicas {replicas}, serve.instances {each}", way_out) == (found.compared, found.way_out)


@pytest.mark.parametrize("keys", [{"serve.instances": 2, "parallelism.replicas": 2}, {"serve.warm_up_requests": 1}])
def test_what_the_llmapi_model_does_is_refused_of_engines(keys: dict[str, Any]) -> None:
    """It is named, with the orchestrator that has instances."""
    found = obstacle(planned({}, keys))

    assert found is not None
    assert "TRTLLM_ORCHESTRATOR" in found.way_out


@pytest.mark.parametrize(
    ("keys", "severity"),
    [
        ({"tensor": 1, "replicas": 4, "instances": 4}, None),
        ({"tensor": 2, "replicas": 4, "instances": 4}, Severity.WARNING),
        ({"tensor": 4, "replicas": 2, "instances": 2, "warm_up_requests": 3}, Severity.WARNING),
        ({"tensor": 1, "replicas": 3, "instances": 2}, Severity.ERROR),
    ],
)
def test_instances_are_checked_with_the_plan(keys: dict[str, Any], severity: Severity | None) -> None:
    """One GPU each is plain; ranks that instances start themselves are not confirmed; what does not fit is refused."""
    found = [one.severity for one in of_llm_api(**keys).findings if one.rule == "PF29"]

    assert ([severity] if severity else []) == found


def test_the_instances_of_a_server_stand_on_one_node() -> None:
    """Sixteen GPUs in one server, eight on a node."""
    loaded = profile({"parallelism.tensor": 2, "parallelism.replicas": 8, "serve.instances": 8})
    (found,) = (one for one in make_plan(llama_8b(), loaded, hardware(8, nodes=2)).findings if one.rule == "PF29")

    assert (Severity.ERROR, "serve.instances: 4") == (found.severity, found.suggestion)
    assert "8 instances of 2 GPUs, 8 on a node" in found.compared


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"runtime": "reference"}, True),
        ({"runtime": "reference", "toolchain": "mock", "trtllm_version": "0.18.2"}, False),
        ({"runtime": "simulated"}, False),
        ({}, False),
    ],
)
def test_a_runtime_that_searches_no_beams_is_told(changes: dict[str, Any], warned: bool) -> None:
    """Behind the llmapi model; the stand-in for the backend of engines searches them."""
    plan = make_plan(llama_8b(), profile(changes | {"limits.max_beam_width": 4, "parallelism.tensor": 1}), hardware(8))
    found = [one for one in plan.findings if "searches no beams" in one.message]

    assert ([Severity.WARNING] if warned else []) == [one.severity for one in found]
