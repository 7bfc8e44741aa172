"""Every weight of a model by name, shape and role, in the Hugging Face layout.

``layer_tensors`` and ``outer_tensors`` name them; every count of parameters or bytes in the program is a sum over
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from trtllm_kit.spec.model import Attention, Dense, Experts, Layer, ModelSpec

EXPERT = "{expert}"
"""Stands for the expert number in the name of a tensor that every expert has."""


class Role(StrEnum):
    """What a tensor is for; quantisation and sharding are decided by role."""

    EMBEDDING = "embedding"
    HEAD = "lm_head"
    NORM = "norm"
    QUERY = "q_proj"
    KEY = "k_proj"
    VALUE = "v_proj"
    ATTENTION_OUT = "o_proj"
    GATE = "gate_proj"
    UP = "up_proj"
    DOWN = "down_proj"
    ROUTER = "router"
    EXPERT_GATE_UP = "expert_gate_up"
    """Fused gate and up projections of all experts in one tensor (Llama 4)."""
    EXPERT_DOWN = "expert_down"
    """Down projections of all experts in one tensor (Llama 4)."""


class TensorFact(BaseModel):
    """One weight tensor of the Hugging Face layout, or ``copies`` alike ones (one for each expert)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """With ``EXPERT`` where the expert number stands."""
    shape: tuple[int, ...]
    """As stored: (out features, in features) for linear layers."""
    role: Role
    layer: int | None
    copies: int = 1

    @property
    def elements(self) -> int:
        """Elements of all copies together."""
        count = self.copies
        for size in self.shape:
            count *= size
        return count

    def names(self) -> Iterator[str]:
        """Yield the tensor name of each copy."""
        if self.copies == 1 and EXPERT not in self.name:
            yield self.name
            return
        for expert in range(self.copies):
            yield self.name.replace(EXPERT, str(expert))


def model_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield every tensor of the model in file order: embedding, layers, final norm, head."""
    embedding, *after = outer_tensors(model)
    yield embedding
    for number in range(len(model.layers)):
        yield from layer_tensors(model, number)
    yield from after


def outer_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield the tensors outside the layers: embedding, final norm, and the head unless it is tied."""
    embedding_shape = (model.vocab, model.hidden)
    yield TensorFact(name=f"{model.prefix}embed_tokens.weight", shape=embedding_shape, role=Role.EMBEDDING, layer=None)
    yield TensorFact(name=f"{model.prefix}norm.weight", shape=(model.hidden,), role=Role.NORM, layer=None)
    if not model.tied_embeddings:
        yield TensorFact(name=model.head_name, shape=embedding_shape, role=Role.HEAD, layer=None)


def layer_tensors(model: ModelSpec, number: int) -> Iterator[TensorFact]:
    """Yield the tensors of decoder layer ``number`` (0-based)."""
    base = f"{model.prefix}layers.{number}."

    def fact(suffix: str, role: Role, *shape: int, copies: int = 1) -> TensorFact:
        return TensorFact(name=base + suffix, shape=shape, role=role, layer=number, copies=copies)

    yield fact("input_layernorm.weight", Role.NORM, model.hidden)
    layer = model.layers[number]
    yield from _attention_tensors(fact, layer.attention, model.hidden)
    yield fact("post_attention_layernorm.weight", Role.NORM, model.hidden)
    if isinstance(layer.feed_forward, Dense):
        name = "feed_forward." if model.family == "llama4" else "mlp."
        yield from _dense_tensors(fact, name, layer.feed_forward, model.hidden)
    else:
        yield from _expert_tensors(fact, layer.feed_forward, model.hidden)


def parameters(model: ModelSpec) -> int:
    """Count all stored parameters."""
    return sum(fact.elements for fact in model_tensors(model))


def active_parameters(model: ModelSpec) -> int:
    """Count the parameters one token's forward pass reads, the output head of a tied model counted once."""
    total = 0
    for fact in model_tensors(model):
        if fact.layer is None:
            total += fact.elements
            continue
        total += round(fact.elements * _active_share(model.layers[fact.layer], fact))
    return total


def _active_share(layer: Layer, fact: TensorFact) -> float:
    block = layer.feed_forward
    routed = fact.copies > 1 or fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
    if not isinstance(block, Experts) or not routed:
        return 1.0
    return block.per_token / block.experts


_Fact = Callable[..., TensorFact]


def _attention_tensors(fact: _Fact, attention: Attention, hidden: int) -> Iterator[TensorFact]:
    query, kept = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    for role, rows in ((Role.QUERY, query), (Role.KEY, kept), (Role.VALUE, kept)):
        yield fact(f"self_attn.{role}.weight", role, rows, hidden)
        if attention.qkv_bias:
            yield fact(f"self_attn.{role}.bias", role, rows)
    yield fact("self_attn.o_proj.weight", Role.ATTENTION_OUT, hidden, query)
    if attention.out_bias:
        yield fact("self_attn.o_proj.bias", Role.ATTENTION_OUT, hidden)
    if attention.qk_norm == "per_head":
        yield fact("self_attn.q_norm.weight", Role.NORM, attention.head_dim)
        yield fact("self_attn.k_norm.weight", Role.NORM, attention.head_dim)


def _dense_tensors(fact: _Fact, name: str, block: Dense, hidden: int) -> Iterator[TensorFact]:
    for role in (Role.GATE, Role.UP):
        yield fact(f"{name}{role}.weight", role, block.intermediate, hidden)
        if block.bias:
            yield fact(f"{name}{role}.bias", role, block.intermediate)
    yield fact(f"{name}down_proj.weight", Role.DOWN, hidden, block.intermediate)
    if block.bias:
        yield fact(f"{name}down_proj.bias", Role.DOWN, hidden)


_EXPERT_NAMES = {
    "mixtral": ("block_sparse_moe.gate.weight", "block_sparse_moe.experts.{expert}.", ("w1", "w3", "w2")),
    "qwen": ("mlp.gate.weight", "mlp.experts.{expert}.", ("gate_proj", "up_proj", "down_proj")),
}
"""Router, expert prefix, and the names of the gate, up and down projections."""


def _expert_tensors(fact: _Fact, block: Experts, hidden: int) -> Iterator[TensorFact]:
    if block.layout == "llama4":
        yield fact("feed_forward.router.weight", Role.ROUTER, block.experts, hidden)
        fused = (block.experts, hidden, 2 * block.intermediate)
        yield fact("feed_forward.experts.gate_up_proj", Role.EXPERT_GATE_UP, *fused)
        yield fact("feed_forward.experts.down_proj", Role.EXPERT_DOWN, block.experts, block.intermediate, hidden)
        shared = Dense(intermediate=block.shared_intermediate)
        yield from _dense_tensors(fact, "feed_forward.shared_expert.", shared, hidden)
        return
    router, prefix, (gate, up, down) = _EXPERT_NAMES[block.layout]
    yield fact(router, Role.ROUTER, block.experts, hidden)
    wide, narrow = (block.intermediate, hidden), (hidden, block.intermediate)
    yield fact(f"{prefix}{gate}.weight", Role.GATE, *wide, copies=block.experts)
    yield fact(f"{prefix}{up}.weight", Role.UP, *wide, copies=block.experts)
    yield fact(f"{prefix}{down}.weight", Role.DOWN, *narrow, copies=block.experts)
