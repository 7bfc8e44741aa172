"""Every weight of TensorRT-LLM's own checkpoint layout: its name, its file, and the numbers of the source in it.

This is the geometry alone, whatever the number format: the names and orders of TensorRT-LLM's models/llama and
models/qwen. ``checkpoint.rank_layout`` gives the weights their formats, ``checkpoint.rank_load`` reads them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trtllm_kit.checkpoint.matrix import Matrix
from trtllm_kit.checkpoint.rank_split import Rank, World, joined
from trtllm_kit.spec.model import Attention, Experts
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors

HEAD = "lm_head.weight"


@dataclass(frozen=True)
class RankTensor:
    """One weight, bias or norm of a rank."""

    name: str
    file: str
    source: Matrix
    shape: tuple[int, ...]
    fact: TensorFact | None = None
    """The tensor it is made from, or the first of those that are joined; None for the ends and norms."""
    whole: Matrix = field(default=Matrix(()), repr=False)
    """What all ranks together hold of a linear weight, block by block: its scale is taken from there."""
    measured: tuple[str, ...] = field(default=(), repr=False)
    """The stored tensors whose inputs are its input."""
    blocks: int = 1
    """Experts one below the other in it."""
    wide: bool = False
    """It stays in float32 (routers)."""

    @property
    def module(self) -> str:
        """Name of the module it belongs to."""
        return self.name.rpartition(".")[0]


def rank_tensors(world: World) -> Iterator[RankTensor]:
    """Yield what every rank holds, file by file, in the order of the model."""
    for rank in world.ranks:
        yield from _first(world, rank)
        for local, number in enumerate(world.stages[rank.stage]):
            yield from _Layer(world, rank, number, f"transformer.layers.{local}.").tensors()
        yield from _last(world, rank)


def _first(world: World, rank: Rank) -> Iterator[RankTensor]:
    if rank.stage == 0:
        source = world.embedded(rank, f"{world.model.prefix}embed_tokens.weight")
        yield _end("transformer.vocab_embedding.weight", rank, source)


def _last(world: World, rank: Rank) -> Iterator[RankTensor]:
    """Yield final norm and head; the head of a model with tied embeddings is a copy of the embedding."""
    model = world.model
    if world.is_last(rank):
        norm = f"{model.prefix}norm.weight"
        yield RankTensor("transformer.ln_f.weight", rank.file, world.whole(norm), world.shapes[norm])
        head = f"{model.prefix}embed_tokens.weight" if model.tied_embeddings else model.head_name
        if world.stores_head:
            yield _end(HEAD, rank, world.vocabulary(rank, head))


def _end(name: str, rank: Rank, source: Matrix) -> RankTensor:
    return RankTensor(name, rank.file, source, (source.rows, source.columns))


class _Layer:
    """One decoder layer of one rank; ``base`` is its name there, which counts from the stage's first layer."""

    def __init__(self, world: World, rank: Rank, number: int, base: str) -> None:
        self._world, self._rank, self._base = world, rank, base
        self._layer = world.model.layers[number]
        self._hf = f"{world.model.prefix}layers.{number}."
        facts = list(layer_tensors(world.model, number))
        self._weights = {fact.role: fact for fact in facts if not fact.is_bias}
        self._biases = {fact.role: fact for fact in facts if fact.is_bias}

    def tensors(self) -> Iterator[RankTensor]:
        """Yield its tensors."""
        yield self._norm("input_layernorm", "input_layernorm")
        yield from self._attention(self._layer.attention)
        yield self._norm("post_layernorm", "post_attention_layernorm")
        if isinstance(self._layer.feed_forward, Experts):
            yield from self._experts(self._layer.feed_forward)
        else:
            yield from self._dense()

    def _norm(self, name: str, stored: str) -> RankTensor:
        tensor = f"{self._hf}{stored}.weight"
        source = self._world.whole(tensor)
        return RankTensor(f"{self._base}{name}.weight", self._rank.file, source, self._world.shapes[tensor])

    def _attention(self, attention: Attention) -> Iterator[RankTensor]:
        world, rank = self._world, self._rank
        roles = (Role.QUERY, Role.KEY, Role.VALUE)
        names = tuple(self._weights[role].name for role in roles)
        yield self._linear("attention.qkv", Role.QUERY, world.fused_qkv(rank, attention, *names), names)
        if Role.QUERY in self._biases:
            biases = (self._biases[role].name for role in roles)
            yield self._bias("attention.qkv", world.fused_qkv(rank, attention, *biases))
        yield from self._row_parallel("attention.dense", Role.ATTENTION_OUT)
        if attention.qk_norm == "per_head":
            yield self._norm("attention.q_layernorm", "self_attn.q_norm")
            yield self._norm("attention.k_layernorm", "self_attn.k_norm")

    def _dense(self) -> Iterator[RankTensor]:
        """Yield ``fc``, which the activation is applied to (the gate projection), ``gate`` (up) and ``proj`` (down)."""
        pair = (self._weights[Role.GATE].name, self._weights[Role.UP].name)
        for name, role in (("mlp.fc", Role.GATE), ("mlp.gate", Role.UP)):
            place = self._rank.tensor, self._world.split.tensor
            yield self._linear(name, role, self._world.rows(self._weights[role].name, *place), pair)
            if role in self._biases:
                yield self._bias(name, self._world.rows(self._biases[role].name, *place))
        yield from self._row_parallel("mlp.proj", Role.DOWN)

    def _row_parallel(self, name: str, role: Role) -> Iterator[RankTensor]:
        """Yield a matrix that ranks hold columns of, and its bias: whole on each, since it joins the sum of all."""
        tensor = self._weights[role].name
        source = self._world.columns(tensor, self._rank.tensor, self._world.split.tensor)
        yield self._linear(name, role, source, (tensor,))
        if role in self._biases:
            yield self._bias(name, self._world.whole(self._biases[role].name))

    def _experts(self, block: Experts) -> Iterator[RankTensor]:
        """Yield the router and the rank's experts in two tensors: up above gate of each, and down."""
        world, rank = self._world, self._rank
        router = self._weights[Role.ROUTER].name
        yield RankTensor(
            f"{self._base}mlp.router.weight", rank.file, world.whole(router), world.shapes[router], wide=True
        )
        gates, ups, downs = (list(self._weights[role].names()) for role in (Role.GATE, Role.UP, Role.DOWN))
        place, mine = (rank.expert_tensor, world.split.expert_tensor), rank.experts(block.experts)
        inner = joined(*(world.rows(name, *place) for expert in mine for name in (ups[expert], gates[expert])))
        whole = world.whole(*(name for expert in mine for name in (ups[expert], gates[expert])))
        yield self._stacked("mlp.fc", Role.GATE, inner, whole, (*gates, *ups))
        outer = joined(*(world.columns(downs[expert], *place) for expert in mine))
        yield self._stacked("mlp.proj", Role.DOWN, outer, world.whole(*(downs[expert] for expert in mine)), (*downs,))

    def _stacked(
        self, name: str, role: Role, source: Matrix, whole: Matrix, measured: tuple[str, ...]
    ) -> RankTensor:  # fmt: skip
        count = len(self._rank.experts(self._weights[role].copies))
        shape = (count, source.rows // count, source.columns)
        fact = self._weights[role]
        full = f"{self._base}{name}.weight"
        return RankTensor(full, self._rank.file, source, shape, fact, whole, measured, blocks=count)

    def _linear(self, name: str, role: Role, source: Matrix, joined_with: tuple[str, ...]) -> RankTensor:
        shape, whole = (source.rows, source.columns), self._world.whole(*joined_with)
        full = f"{self._base}{name}.weight"
        return RankTensor(full, self._rank.file, source, shape, self._weights[role], whole, joined_with)

    def _bias(self, name: str, source: Matrix) -> RankTensor:
        return RankTensor(f"{self._base}{name}.bias", self._rank.file, source, (source.rows,))
