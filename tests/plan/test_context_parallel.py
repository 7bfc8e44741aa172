"""Context parallelism in a plan: what ranks hold and exchange, what is refused, what checkpoint and engine are told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, llama_70b, profile, qwen3_moe
from trtllm_kit.build.mock import engine_files
from trtllm_kit.build.step import Run
from trtllm_kit.build.toolchain import steps
from trtllm_kit.checkpoint.rank_config import rank_config
from trtllm_kit.findings import Finding, Severity, errors
from trtllm_kit.plan.communication import communication_plan, ring_bytes_sent
from trtllm_kit.plan.conversion import conversion_of
from trtllm_kit.plan.explain import explain
from trtllm_kit.plan.parallelism import Split, exchanged, obstacles
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.ranks import order_of
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.model import ModelSpec

ERROR, WARNING = Severity.ERROR, Severity.WARNING
ENGINES = {"toolchain": "trtllm-build", "trtllm_version": "1.1.0"}
PARTS = {**ENGINES, "parallelism.tensor": 2, "parallelism.context": 4}


def plan(changes: dict[str, Any], model: ModelSpec | None = None) -> Plan:
    """Plan 8B on eight GPUs."""
    return settle(model or llama_8b(), profile(changes), hardware(8))


def said(changes: dict[str, Any], model: ModelSpec | None = None) -> list[Finding]:
    """Return what the rule of context parallelism says."""
    return [finding for finding in plan(changes, model).findings if finding.rule == "PF47"]


def test_ranks_are_tensor_times_context_times_stages() -> None:
    """16 ranks, of which four hold different weights; heads are shared by eight."""
    split = Split(2, 2, context=4)
    assert (16, 4, 8, 2) == (split.world_size, split.shares, split.heads, split.dense)


def test_weights_are_those_of_the_tensor_ranks_and_the_cache_is_split() -> None:
    """8 KV heads over 2 x 4 ranks are one each; over 2 they are four, and the weights are the same."""
    cut, whole = plan(PARTS).memory, plan({**PARTS, "parallelism.context": 1}).memory
    assert whole.kv_bytes_per_token == 4 * cut.kv_bytes_per_token
    assert whole.parameters_held == cut.parameters_held


def test_heads_are_exchanged_through_two_buffers() -> None:
    """Of 16 query heads and 2 x 4 KV heads of 128 elements on a tensor rank, for the tokens of a step, in 16 bit."""
    terms = {term.name: term.bytes for term in plan(PARTS).memory.terms}
    assert 2 * 8192 * (16 + 2 * 4) * 128 * 2 == terms["context exchange"]
    assert ((16 + 2 * 4) * 128, 16 * 128) == exchanged(llama_8b().layers[0].attention, 2)


def test_a_rank_reduces_its_part_and_exchanges_heads() -> None:
    """1,000 tokens over 2 x 4 ranks: 250 are reduced, and three quarters of their heads go to others and back."""
    traffic = communication_plan(llama_8b(), Split(2, context=4), 1000)
    reduced = 32 * 2 * 250 * 4096 * 2
    moved = 32 * 250 * (24 + 16) * 128 * 2 * 3 // 4
    assert (64, reduced) == (traffic.all_reduces, traffic.payload_bytes)
    assert ring_bytes_sent(reduced, 2) + moved == traffic.sent_bytes_per_gpu


def test_heads_must_be_whole_on_every_rank() -> None:
    """32 heads over 64 ranks are refused, 70B's 64 are not: its KV heads are copied, as over tensor ranks."""
    wide = hardware(64)
    assert ["PF1"] == [one.rule for one in obstacles(llama_8b(), Split(8, context=8), wide)]
    assert () == obstacles(llama_70b(), Split(8, context=8), wide)


def test_ranks_of_one_sequence_want_to_be_near_each_other() -> None:
    """16 tensor and context ranks over two nodes of eight without NVLink between them exchange over the network."""
    (found,) = obstacles(llama_8b(), Split(8, context=2), hardware(8, nodes=2))
    assert ("PF20", False, "16 tensor and context ranks, 8 GPUs in one node or NVLink domain") == (
        found.rule, found.hard, found.compared,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "model", "severity", "compared"),
    [
        ({"parallelism.context": 2}, None, ERROR, "there context ranks are for generation alone"),
        ({"parallelism.context": 2, "trtllm_version": "1.0.0"}, None, ERROR, "toolchain llm-api"),
        (PARTS | {"trtllm_version": "0.16.0"}, None, WARNING, "known of 0.17"),
        (PARTS, qwen3_moe(8), WARNING, "known of no release; not confirmed for this release"),
    ],
)
def test_what_does_not_cut_sequences_is_said(
    changes: dict[str, Any], model: ModelSpec | None, severity: Severity, compared: str
) -> None:
    """The PyTorch backend is refused with the reason; engines that nobody is known to build so are doubted."""
    first = said(changes, model)[0]
    assert (severity, True) == (first.severity, compared in first.compared)


def test_experts_beside_context_ranks_are_doubted() -> None:
    """The mapping of a neighbouring release refuses expert ranks beside them."""
    found = said(PARTS | {"parallelism.expert": 2}, qwen3_moe(8))[-1]
    assert (WARNING, True) == (found.severity, "are not implemented" in found.message)


@pytest.mark.parametrize(("packed", "said_of"), [("disable", 1), ("enable", 0)])
def test_padded_input_cannot_be_cut(packed: str, said_of: int) -> None:
    """The builder's graph cuts packed tokens alone, which is what trtkit chooses."""
    found = said(PARTS | {"build.options": {"remove_input_padding": packed}})
    assert said_of == len([one for one in found if "padded input" in one.message])


def test_a_sequence_is_whole_or_in_parts() -> None:
    """Requests of their own and parts of every request exclude each other."""
    assert {ERROR} == {one.severity for one in said({**PARTS, "parallelism.attention_dp": True})[:1]}


@pytest.mark.parametrize("version", ["0.17.0", "0.21.0", "1.1.0", "1.2.1"])
def test_engines_of_llama_are_let_through(version: str) -> None:
    """Nothing is said against them in releases whose converter takes context ranks."""
    made = plan(PARTS | {"trtllm_version": version})
    assert [] == [finding for finding in made.findings if finding.rule == "PF47"]
    assert not errors(made.findings)


def test_the_checkpoint_names_context_ranks_that_read_the_same_files() -> None:
    """Its mapping multiplies the world by them, and a conversion with others is another one."""
    cut, whole = plan(PARTS), plan({**PARTS, "parallelism.context": 1})
    mapping = json.loads(rank_config(order_of(cut)))["mapping"]
    assert {"world_size": 8, "tp_size": 2, "pp_size": 1, "cp_size": 4} == mapping
    assert "cp_size" not in json.loads(rank_config(order_of(whole)))["mapping"]
    assert conversion_of(cut).digest != conversion_of(whole).digest
    assert "context" not in conversion_of(whole).model_dump()["ranks"]


def test_every_rank_has_an_engine() -> None:
    """Eight ranks of 2 x 4 each get a file, from the builder and from its stand-in, whose mapping says four."""
    made = plan(PARTS)
    (built,) = [step for step in steps(made) if isinstance(step, Run)]
    assert 8 == sum(name.endswith(".engine") for name in built.outputs)
    files = engine_files(made)
    assert 8 == sum(name.endswith(".engine") for name in files)
    assert 4 == json.loads(files["config.json"])["pretrained_config"]["mapping"]["cp_size"]


def test_plans_that_do_not_ask_for_it_are_spelt_as_before() -> None:
    """What was not asked is no part of a plan's document; what was is read back."""
    assert "context" not in plan(ENGINES).model_dump()["parallelism"]
    made = plan(PARTS)
    read = Plan.model_validate_json(made.model_dump_json())
    assert (made.digest, replace(Split(2), context=4)) == (read.digest, read.parallelism.split)


def test_the_key_is_explained() -> None:
    """With its cost and the rule that looks at it; the LLM API's key is not written."""
    told = explain("parallelism.context", ())
    assert ((), True) == (told.becomes, "PF47" in told.checks)
    assert "costs GPUs" in told.cost
