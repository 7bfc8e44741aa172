"""State of recurrent layers: per sequence, never per token, and shared out like heads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.test_checks import findings
from tests.support.cli import MODELS
from tests.support.specs import hardware, llama_8b
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.memory import Sizing, kv_bytes_per_token, memory_plan
from trtllm_kit.plan.parallelism import Split, obstacles
from trtllm_kit.plan.recurrent import state_bytes_per_sequence
from trtllm_kit.plan.speculation import Drafting, draft_memory
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import Attention, ModelSpec
from trtllm_kit.spec.profile import KvCache, Limits, Load
from trtllm_kit.spec.profile_sections import Speculation
from trtllm_kit.spec.tensors import parameters, prediction_tensors


def small(name: str) -> ModelSpec:
    """Read one of the small configurations."""
    return read_model_spec(json.loads((MODELS / f"{name}.json").read_text("utf-8")), name)


def recorded(shared: Path, name: str) -> ModelSpec:
    """Read one of the recorded ones."""
    return read_model_spec(json.loads((shared / "models" / f"{name}_config.json").read_text("utf-8")), name)


@pytest.fixture
def machine() -> Hardware:
    """Return eight H200."""
    return hardware(8)


def sizing(model: ModelSpec, hardware: Hardware, split: Split) -> Sizing:
    """Make a sizing of usual limits."""
    limits = Limits(max_batch_size=16, max_num_tokens=2048, max_seq_len=64)
    load = Load(input_tokens=32, output_tokens=8)
    return Sizing(model, hardware, split, Formats(), "tensorrt_llm", limits, KvCache(), load)


def test_state_of_a_delta_net() -> None:
    """Three layers: 3 remembered inputs of 2 x 2 x 8 + 4 x 6 channels in 16 bit, and 4 x 8 x 6 elements of float32."""
    assert 3 * (3 * 56 * 2 + 4 * 8 * 6 * 4) == state_bytes_per_sequence(small("qwen3.5").layers, 1)


def test_state_of_a_mamba() -> None:
    """Two layers: 3 inputs of 4 x 16 + 2 x 2 x 8 channels in 16 bit, and 4 x 16 x 8 elements of float32."""
    assert 2 * (3 * 96 * 2 + 4 * 16 * 8 * 4) == state_bytes_per_sequence(small("nemotron-h").layers, 1)


def test_two_ranks_hold_half_a_state_each() -> None:
    """Convolution and state are shared out alike."""
    layers = small("nemotron-h").layers
    assert state_bytes_per_sequence(layers, 1) == 2 * state_bytes_per_sequence(layers, 2)


def test_layers_that_attend_hold_no_state() -> None:
    """Nothing is kept of a sequence beside its keys and values."""
    assert 0 == state_bytes_per_sequence(small("mimo-v2").layers, 1)


def test_a_recorded_nemotron(shared: Path) -> None:
    """Nemotron-3-Nano: 23 Mamba layers of 64 x 64 x 128 float32 and 3 x 6144 in 16 bit; 6 layers cache 2 KV heads."""
    model = recorded(shared, "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert 23 * (64 * 64 * 128 * 4 + 3 * 6144 * 2) == state_bytes_per_sequence(model.layers, 1)
    assert 6 * 2 * 2 * 128 * 2 == kv_bytes_per_token(model.layers, 1, 2.0)


def test_values_narrower_than_keys_take_less_cache() -> None:
    """A full layer of 1 head and three sliding ones of 2, keys of 12 and values of 8 elements, in 16 bit."""
    assert (1 + 3 * 2) * (12 + 8) * 2 == kv_bytes_per_token(small("mimo-v2").layers, 1, 2.0)


def test_states_are_a_term_that_grows_with_the_batch_alone(machine: Hardware) -> None:
    """Twice the batch takes twice the states; a longer sequence takes no more of them."""
    base = sizing(small("nemotron-h"), machine, Split())
    found = []
    for change in ({}, {"max_batch_size": 32}, {"max_seq_len": 128}):
        given = replace(base, limits=base.limits.model_copy(update=change))
        found += [term.bytes for term in memory_plan(given).terms if term.name == "recurrent states"]

    each = state_bytes_per_sequence(base.model.layers, 1)
    assert [16 * each, 32 * each, 16 * each] == found


def test_every_micro_batch_has_states(machine: Hardware) -> None:
    """With two stages a rank keeps the states of two micro-batches of 16, for the two Mamba layers of one stage."""
    base = sizing(small("nemotron-h"), machine, Split(pipeline=2))
    found = {term.name: term.bytes for term in memory_plan(base).terms}
    assert 2 * 16 * state_bytes_per_sequence(base.model.layers, 1) == found["recurrent states"]


def test_a_stage_that_caches_nothing_holds_its_batch(machine: Hardware) -> None:
    """Of a hybrid cut between its layers, one stage may have states alone: the batch it has room for is the answer."""
    model = small("nemotron-h")
    mambas = model.model_copy(update={"layers": model.layers[:1]})
    assert 16 == memory_plan(sizing(mambas, machine, Split())).sequences


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.5-moe", "nemotron-3", "gemma-4", "nemotron-nas", "step-3.7"])
def test_one_rank_holds_every_parameter(name: str) -> None:
    """Without a split the sum over a rank is the model's count, each element once; the tied embedding twice never."""
    model = small(name)
    held = held_by_stage(model, Split(), Formats(), range(len(model.layers)))
    assert parameters(model) == held.parameters


def test_ranks_that_do_not_divide_the_heads_with_a_state(machine: Hardware) -> None:
    """Three ranks cannot share 4 Mamba heads; four can, though not its 2 groups for certain; two are free to run."""
    by_ranks = {ranks: obstacles(small("nemotron-h"), Split(tensor=ranks), machine) for ranks in (2, 3, 4)}

    assert () == by_ranks[2]
    assert "4 heads with a state cannot be split over 3 tensor ranks." in [one.message for one in by_ranks[3]]
    assert [False] == [one.hard for one in by_ranks[4]]


def test_a_plan_says_that_the_family_is_not_converted() -> None:
    """PF34 warns by name for a hybrid, and not for a Llama."""
    found = [findings(model, hardware(8)) for model in (small("nemotron-h"), llama_8b())]
    said = [[one.message for one in several if one.rule == "PF34"] for several in found]

    assert ["trtkit convert will refuse this plan: NemotronHForCausalLM is planned, not converted."] == said[0]
    assert [] == said[1]


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.5-moe", "nemotron-3", "mimo-7b"])
def test_own_prediction_layers_weigh_what_the_files_hold(name: str) -> None:
    """Drafting with them takes their tensors in 16 bit but for the norms around them; each attention is cached."""
    model = small(name)
    asked = Speculation(kind="mtp", draft_tokens=1)
    memory = draft_memory(Drafting(asked, "1.2.1"), model, Split())
    norms = 3 * model.hidden

    assert 2 * (sum(fact.elements for fact in prediction_tensors(model)) - norms) == memory.weight_bytes
    assert set(memory.attentions) == {
        layer.mixer for layer in model.prediction_step if isinstance(layer.mixer, Attention)
    }
