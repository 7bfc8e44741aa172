"""Which numbers each rank takes, against numpy's own ways of cutting arrays apart."""

from __future__ import annotations

from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.specs import llama
from trtllm_kit.checkpoint.matrix import Matrix, matrix_shape
from trtllm_kit.checkpoint.rank_split import Rank, World
from trtllm_kit.checkpoint.rank_tensors import rank_tensors
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.model import Attention, Dense, Experts, Layer, ModelSpec
from trtllm_kit.spec.tensors import model_tensors

Numbers = NDArray[np.int64]


class Case(NamedTuple):
    """A model and a split that is legal for it."""

    model: ModelSpec
    split: Split


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw head counts, widths, experts and ranks that go together."""
    tensor = draw(st.sampled_from([1, 2, 3, 4, 8]))
    pipeline = draw(st.integers(1, 3))
    kept = draw(st.sampled_from([count for count in range(1, 9) if count % tensor == 0 or tensor % count == 0]))
    groups = draw(st.integers(1, 3)) * (tensor // kept if kept < tensor else 1)
    attention = Attention(
        kind="full",
        heads=kept * groups,
        kv_heads=kept,
        head_dim=draw(st.sampled_from([2, 3])),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
    )
    expert = draw(st.sampled_from([size for size in (1, 2, 4, 8) if tensor % size == 0]))
    block: Dense | Experts
    if draw(st.booleans()):
        wide = draw(st.integers(1, 3)) * tensor // expert
        block = Experts(experts=expert * draw(st.integers(1, 2)), per_token=1, intermediate=wide, layout="mixtral")
    else:
        block, expert = Dense(intermediate=draw(st.integers(1, 3)) * tensor, bias=draw(st.booleans())), 1
    layers = (Layer(mixer=attention, feed_forward=block),) * draw(st.integers(pipeline, 5))
    vocab = draw(st.integers(1, 20))
    spec = llama(1, 4, 2, 2, 8, vocab=vocab, tied_embeddings=draw(st.booleans()))
    return Case(spec.model_copy(update={"layers": layers}), Split(tensor, pipeline, expert))


def stored_numbers(model: ModelSpec) -> dict[str, Numbers]:
    """Give every element of every tensor a number of its own above zero."""
    tensors, begin = {}, 1
    for fact in model_tensors(model):
        for name in fact.names():
            tensors[name] = np.arange(begin, begin + prod(fact.shape)).reshape(fact.shape)
            begin += prod(fact.shape)
    return tensors


def taken(matrix: Matrix, stored: dict[str, Numbers]) -> Numbers:
    """Cut a matrix out of the stored tensors, as its definition says."""
    parts = [
        stored[part.tensor].reshape(matrix_shape(stored[part.tensor].shape))[slice(*part.rows), slice(*part.columns)]
        for part in matrix.slices
    ]
    return np.concatenate([*parts, np.zeros((matrix.zero_rows, matrix.columns), np.int64)])


def of_ranks(case: Case) -> tuple[list[dict[str, Numbers]], dict[str, Numbers]]:
    """Return what each rank holds by name, and the stored tensors."""
    stored = stored_numbers(case.model)
    world = World(case.model, case.split, {name: tensor.shape for name, tensor in stored.items()})
    held: list[dict[str, Numbers]] = [{} for _ in world.ranks]
    files = {rank.file: rank.number for rank in world.ranks}
    for tensor in rank_tensors(world):
        assert tensor.name not in held[files[tensor.file]]
        held[files[tensor.file]][tensor.name] = taken(tensor.source, stored).reshape(tensor.shape)
    return held, stored


def layer_of(case: Case, number: int) -> tuple[int, str]:
    """Return the stage of a layer and what it is called there; the first stages take the layers left over."""
    sizes = [len(part) for part in np.array_split(np.arange(len(case.model.layers)), case.split.pipeline)]
    stage = next(stage for stage in range(len(sizes)) if number < sum(sizes[: stage + 1]))
    return stage, f"transformer.layers.{number - sum(sizes[:stage])}."


@settings(max_examples=60, deadline=None)
@given(cases())
def test_every_rank_holds_what_numpy_cuts(case: Case) -> None:
    """Heads, widths, columns, experts and vocabulary of every rank are those of array_split, repeat and stack."""
    held, stored = of_ranks(case)
    ranks, last = case.split.tensor, case.split.world_size - case.split.tensor
    embedding = stored["model.embed_tokens.weight"]
    head = embedding if case.model.tied_embeddings else stored["lm_head.weight"]
    padding = ((0, ceil(case.model.vocab / ranks) * ranks - case.model.vocab), (0, 0))
    for rank in range(ranks):
        for name, table, number in (
            ("transformer.vocab_embedding.weight", embedding, rank),
            ("lm_head.weight", head, last + rank),
        ):
            assert np.array_equal(np.split(np.pad(table, padding), ranks)[rank], held[number][name])
    for number, layer in enumerate(case.model.layers):
        stage, base = layer_of(case, number)
        for rank in range(ranks):
            mine = held[stage * ranks + rank]
            wanted = expected_layer(case, stored, f"model.layers.{number}.", layer, rank)
            assert {f"{base}{name}" for name in wanted} == {name for name in mine if name.startswith(base)}
            for name, numbers in wanted.items():
                assert np.array_equal(numbers, mine[f"{base}{name}"]), name


def expected_layer(case: Case, stored: dict[str, Numbers], hf: str, layer: Layer, rank: int) -> dict[str, Numbers]:
    """Cut one rank's part of a layer with numpy."""
    ranks, attention = case.split.tensor, layer.attention

    def heads(part: str, *, kept: bool) -> Numbers:
        tensor = stored[f"{hf}self_attn.{part}"]
        count = attention.kv_heads if kept else attention.heads
        split = tensor.reshape(count, attention.head_dim, *tensor.shape[1:])
        split = np.repeat(split, max(ranks // attention.kv_heads, 1), axis=0) if kept else split
        mine = np.split(split, ranks)[rank]
        return mine.reshape(-1, *tensor.shape[1:])

    def qkv(end: str) -> Numbers:
        parts = [heads(f"{short}_proj.{end}", kept=short != "q") for short in "qkv"]
        return np.concatenate(parts)

    found: dict[str, Numbers] = {
        "input_layernorm.weight": stored[f"{hf}input_layernorm.weight"],
        "post_layernorm.weight": stored[f"{hf}post_attention_layernorm.weight"],
        "attention.qkv.weight": qkv("weight"),
        "attention.dense.weight": np.split(stored[f"{hf}self_attn.o_proj.weight"], ranks, axis=1)[rank],
    }
    found |= {"attention.qkv.bias": qkv("bias")} if attention.qkv_bias else {}
    found |= {"attention.dense.bias": stored[f"{hf}self_attn.o_proj.bias"]} if attention.out_bias else {}
    block = layer.feed_forward
    return found | (experts(case, stored, hf, rank) if isinstance(block, Experts) else dense(ranks, stored, hf, rank))


def dense(ranks: int, stored: dict[str, Numbers], hf: str, rank: int) -> dict[str, Numbers]:
    """Cut a feed-forward block."""
    found = {}
    for part in ("weight", "bias"):
        if f"{hf}mlp.up_proj.{part}" in stored:
            found[f"mlp.fc.{part}"] = np.split(stored[f"{hf}mlp.gate_proj.{part}"], ranks)[rank]
            found[f"mlp.gate.{part}"] = np.split(stored[f"{hf}mlp.up_proj.{part}"], ranks)[rank]
    found["mlp.proj.weight"] = np.split(stored[f"{hf}mlp.down_proj.weight"], ranks, axis=1)[rank]
    return found | ({"mlp.proj.bias": stored[f"{hf}mlp.down_proj.bias"]} if "mlp.fc.bias" in found else {})


def experts(case: Case, stored: dict[str, Numbers], hf: str, rank: int) -> dict[str, Numbers]:
    """Stack a rank's experts: neighbours by ``rank % expert ranks``, widths by ``rank // expert ranks``."""
    block: Any = case.model.layers[0].feed_forward
    place, group = divmod(rank, case.split.expert)
    split = case.split.tensor // case.split.expert
    prefix = f"{hf}block_sparse_moe."
    fc, proj = [], []
    for expert in np.split(np.arange(block.experts), case.split.expert)[group]:
        w1, w2, w3 = (stored[f"{prefix}experts.{expert}.w{number}.weight"] for number in (1, 2, 3))
        fc.append(np.concatenate([np.split(w3, split)[place], np.split(w1, split)[place]]))
        proj.append(np.split(w2, split, axis=1)[place])
    router = {"mlp.router.weight": stored[f"{prefix}gate.weight"]}
    return router | {"mlp.fc.weight": np.stack(fc), "mlp.proj.weight": np.stack(proj)}


@given(st.integers(1, 4), st.integers(1, 4))
def test_files_are_numbered_stage_by_stage(tensor: int, pipeline: int) -> None:
    """Rank = stage x tensor ranks + tensor rank."""
    split = Split(tensor, pipeline)
    ranks = [Rank(split, number) for number in range(split.world_size)]
    assert [(stage, place) for stage in range(pipeline) for place in range(tensor)] == [
        (rank.stage, rank.tensor) for rank in ranks
    ]
    assert [f"rank{number}.safetensors" for number in range(tensor * pipeline)] == [rank.file for rank in ranks]


@settings(max_examples=30, deadline=None)
@given(cases())
def test_the_scale_of_a_part_is_taken_from_a_matrix_that_holds_it(case: Case) -> None:
    """What all ranks hold of a linear weight together contains each rank's part, block by block."""
    shapes = {name: tensor.shape for name, tensor in stored_numbers(case.model).items()}
    for tensor in rank_tensors(World(case.model, case.split, shapes)):
        for number in range(tensor.blocks if tensor.fact is not None else 0):
            assert tensor.whole.block(number, tensor.blocks).holds(tensor.source.block(number, tensor.blocks))
