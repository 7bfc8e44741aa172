"""Attention data parallelism in a plan: what ranks hold and exchange, what is refused, what the release is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.specs import deepseek_v3, gpt_oss_120b, hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.findings import Finding, Severity, errors
from trtllm_kit.plan.communication import communication_plan
from trtllm_kit.plan.explain import explain
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split, obstacles
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.plan.weights import held_by_layer
from trtllm_kit.spec.model import ModelSpec

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
MACHINE = hardware(8, 192, 100)
ON = {"parallelism.attention_dp": True, "parallelism.tensor": 8}
EXPERTS = {**ON, "parallelism.expert": 8}


def plan(changes: dict[str, Any], model: ModelSpec | None = None) -> Plan:
    """Plan Qwen3 with experts, eight layers of it, on eight GPUs of 192 GiB."""
    return settle(model or qwen3_moe(8), profile(changes), MACHINE)


def said(changes: dict[str, Any], model: ModelSpec | None = None) -> list[Finding]:
    """Return what the rule of attention data parallelism says."""
    return [finding for finding in plan(changes, model).findings if finding.rule == "PF46"]


def test_a_rank_holds_everything_but_the_experts_of_the_others() -> None:
    """One layer of DeepSeek over eight ranks: all of it, less seven eighths of 256 experts of three matrices."""
    model, split = deepseek_v3(4), Split(8, expert=8, attention_dp=True)
    whole = held_by_layer(model, 3, Split(), Formats()).parameters
    held = held_by_layer(model, 3, split, Formats()).parameters
    assert whole - 256 * 7 // 8 * 3 * 7168 * 2048 == held


def test_a_rank_caches_whole_tokens_and_ranks_hold_sequences_of_their_own() -> None:
    """A token takes the bytes of one rank; the replica holds a rank's sequences eight times."""
    memory, alone = plan(EXPERTS).memory, plan({}).memory
    assert alone.kv_bytes_per_token == memory.kv_bytes_per_token
    assert 8 * (memory.kv_budget_bytes // memory.kv_bytes_per_sequence) == memory.sequences
    assert 8 == memory.data_ranks


@pytest.mark.parametrize(("asked", "of_one"), [(1, 1), (8, 1), (9, 2), (64, 8)])
def test_asked_sequences_are_shared_out_and_each_is_on_one_rank(asked: int, of_one: int) -> None:
    """Nine sequences over eight ranks are two on the fullest."""
    memory = plan({**EXPERTS, "load.min_concurrency": asked}).memory
    assert of_one * memory.kv_bytes_per_sequence == memory.asked_bytes


def test_experts_sort_the_tokens_of_all_ranks() -> None:
    """The workspace of routing is that of eight ranks' tokens over as many expert ranks."""
    together = {term.name: term.bytes for term in plan(EXPERTS).memory.terms}
    shared = {term.name: term.bytes for term in plan({**EXPERTS, "parallelism.attention_dp": False}).memory.terms}
    assert 8 * shared["expert routing"] == together["expert routing"]


def test_heads_that_ranks_cannot_split_stay_whole() -> None:
    """24 ranks split neither 32 heads nor a width of 14,336; with requests of their own they need not."""
    model, wide = llama_8b(), hardware(24)
    assert {"PF1", "PF6"} == {one.rule for one in obstacles(model, Split(24), wide)}
    assert () == obstacles(model, Split(24, attention_dp=True), wide)


def test_tokens_go_to_experts_and_back_and_nothing_is_reduced() -> None:
    """100 tokens of 4,096 elements in 16 bit, eight layers, there and back, to seven other ranks."""
    traffic = communication_plan(qwen3_moe(8), Split(8, expert=8, attention_dp=True), 100)
    assert (0, 8 * 2 * 100 * 4096 * 2) == (traffic.all_reduces, traffic.payload_bytes)
    assert 7 * traffic.payload_bytes == traffic.sent_bytes_per_gpu


def test_ranks_of_a_dense_model_exchange_nothing() -> None:
    """Without experts each rank is a server of its own that waits for the others."""
    traffic = communication_plan(llama_8b(), Split(4, attention_dp=True), 100)
    assert (0, 0, 0) == (traffic.all_reduces, traffic.payload_bytes, traffic.sent_bytes_per_gpu)


@pytest.mark.parametrize(
    ("changes", "model", "severity", "compared"),
    [
        (EXPERTS | {"toolchain": "trtllm-build", "trtllm_version": "1.1.0"}, None, ERROR, "toolchain trtllm-build"),
        (ON, llama_8b(), WARNING, "known of no release; not confirmed for this release"),
        (EXPERTS | {"trtllm_version": "1.0.0"}, gpt_oss_120b(4), WARNING, "known of 1.1.0"),
        ({"parallelism.attention_dp": True}, None, INFO, "parallelism.tensor 1"),
        ({"engine.attention_dp_balance": True}, None, WARNING, "parallelism.attention_dp false"),
        (EXPERTS | {"engine.attention_dp_timeout_iters": 5}, None, WARNING, "attention_dp_balance false"),
    ],
)
def test_what_makes_no_sense_is_said(
    changes: dict[str, Any], model: ModelSpec | None, severity: Severity, compared: str
) -> None:
    """Each with its severity and the values compared."""
    first = said(changes, model)[0]
    assert (severity, True) == (first.severity, compared in first.compared)


def test_whole_models_on_every_rank_are_what_replicas_are() -> None:
    """Of a dense model eight ranks with their own requests are refused by nobody, and eight replicas are proposed."""
    found = said(ON, llama_8b())[-1]
    assert (WARNING, True) == (found.severity, found.suggestion.endswith("parallelism.replicas: 8"))


@pytest.mark.parametrize("model", [qwen3_moe(8), deepseek_v3(8), gpt_oss_120b(4)])
@pytest.mark.parametrize("version", ["1.1.0", "1.2.1", "main"])
def test_models_with_experts_that_run_so_are_let_through(model: ModelSpec, version: str) -> None:
    """Nothing is said against a balance either, whether its times are asked or left to the release."""
    asked = EXPERTS | {"trtllm_version": version, "engine.attention_dp_balance": True}
    made = plan(asked | {"engine.attention_dp_wait_iters": 0}, model)
    assert not errors(made.findings)
    assert [] == [finding for finding in made.findings if finding.rule == "PF46"]


def test_the_release_is_told_so_in_its_own_words() -> None:
    """The document has the switch and the balance where they are asked, and neither where they are not."""
    asked = EXPERTS | {"engine.attention_dp_balance": True, "engine.attention_dp_timeout_iters": 60}
    document = llm_api_document(plan(asked))
    assert (True, 8) == (document["enable_attention_dp"], document["tensor_parallel_size"])
    assert {"enable_balance": True, "timeout_iters": 60} == document["attention_dp_config"]
    assert {"enable_attention_dp", "attention_dp_config"}.isdisjoint(llm_api_document(plan({})))


def test_plans_that_do_not_ask_for_it_are_spelt_as_before() -> None:
    """What was not asked is no part of a plan's document, so that no stored artifact counts as another."""
    document = plan({}).model_dump()
    assert "attention_dp" not in document["parallelism"]
    assert not [name for name in document["engine"] if name.startswith("attention_dp")]
    assert "data_ranks" not in document["memory"]


def test_a_stored_plan_is_read_back() -> None:
    """JSON and back gives the same decisions and digest."""
    made = plan(EXPERTS | {"engine.attention_dp_balance": True})
    read = Plan.model_validate_json(made.model_dump_json())
    assert (made, made.digest) == (read, read.digest)
    assert replace(Split(8, expert=8), attention_dp=True) == read.parallelism.split


def test_the_key_is_explained() -> None:
    """With its cost, the upstream key of each release, and the rule that looks at it."""
    told = explain("parallelism.attention_dp", ())
    assert {"enable_attention_dp"} == {one.key for one in told.becomes}
    assert ("PF46" in told.checks, "copy of everything but the experts" in told.cost) == (True, True)
