"""Every weight of a model by name, shape and role, in the Hugging Face layout.

``layer_tensors`` and ``outer_tensors`` name them; every count of parameters or bytes in the program is a sum over
them. Names and shapes are those of 16-bit weights, also for a model whose published files hold others: gpt-oss has
its experts as MXFP4 blocks and scales, DeepSeek-V3 its linears as FP8 beside ``weight_scale_inv``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from trtllm_kit.spec.model import Attention, Dense, Experts, Latent, Layer, ModelSpec

EXPERT = "{expert}"
"""Stands for the expert number in the name of a tensor that every expert has."""
CHOICE_BIAS = "e_score_correction_bias"
"""What the name of a router's choice bias ends in (DeepSeek)."""


class Role(StrEnum):
    """What a tensor is for; quantisation and sharding are decided by role."""

    EMBEDDING = "embedding"
    HEAD = "lm_head"
    NORM = "norm"
    QUERY = "q_proj"
    KEY = "k_proj"
    VALUE = "v_proj"
    QUERY_DOWN = "q_a_proj"
    """Squeezes the hidden state to the query's latent vector (DeepSeek)."""
    QUERY_UP = "q_b_proj"
    """Expands it to the query heads."""
    LATENT_DOWN = "kv_a_proj_with_mqa"
    """Squeezes the hidden state to what the KV cache holds: the latent vector and the key that has a position."""
    LATENT_UP = "kv_b_proj"
    """Expands the latent vector to the keys and values of all heads."""
    SINK = "sinks"
    """One score a head that takes attention from the tokens (gpt-oss)."""
    QKV = "qkv_proj"
    """Query, key and value in one tensor (Phi-3)."""
    ATTENTION_OUT = "o_proj"
    GATE = "gate_proj"
    UP = "up_proj"
    GATE_UP = "gate_up_proj"
    """Gate and up in one tensor (Phi-3)."""
    DOWN = "down_proj"
    SHARED_GATE = "shared_gate"
    """Of the expert that every token visits, as the next two."""
    SHARED_UP = "shared_up"
    SHARED_DOWN = "shared_down"
    ROUTER = "router"
    CHOICE_BIAS = "choice_bias"
    """Joins the router's scores for the choice of experts (DeepSeek)."""
    EXPERT_GATE_UP = "expert_gate_up"
    """Fused gate and up projections of all experts in one tensor (Llama 4, gpt-oss)."""
    EXPERT_DOWN = "expert_down"
    """Down projections of all experts in one tensor (Llama 4, gpt-oss)."""
    PREDICTION = "prediction"
    """Joins the hidden state and the next token's embedding in front of a prediction layer (DeepSeek)."""


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
    def is_bias(self) -> bool:
        """Whether it is added to a product or to a router's scores, and no matrix or norm."""
        return self.name.endswith("bias")

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
    yield from _layer_tensors(model, _facts_of(model, number), model.layers[number])


def prediction_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield the tensors of the prediction layers (MTP), which stand behind the last layer and are built like it.

    Each has an embedding and a head of its own in the file. No count of the model's parameters includes them.
    """
    for number in range(len(model.layers), len(model.layers) + model.prediction_layers):
        fact = _facts_of(model, number)
        yield fact("embed_tokens.weight", Role.EMBEDDING, model.vocab, model.hidden)
        yield fact("enorm.weight", Role.NORM, model.hidden)
        yield fact("hnorm.weight", Role.NORM, model.hidden)
        yield fact("eh_proj.weight", Role.PREDICTION, model.hidden, 2 * model.hidden)
        yield from _layer_tensors(model, fact, model.layers[-1])
        yield fact("shared_head.norm.weight", Role.NORM, model.hidden)
        yield fact("shared_head.head.weight", Role.HEAD, model.vocab, model.hidden)


def _facts_of(model: ModelSpec, number: int) -> _Fact:
    """Return what makes the facts of layer ``number``."""
    base = f"{model.prefix}layers.{number}."

    def fact(suffix: str, role: Role, *shape: int, copies: int = 1) -> TensorFact:
        return TensorFact(name=base + suffix, shape=shape, role=role, layer=number, copies=copies)

    return fact


def _layer_tensors(model: ModelSpec, fact: _Fact, layer: Layer) -> Iterator[TensorFact]:
    yield fact("input_layernorm.weight", Role.NORM, model.hidden)
    yield from _attention_tensors(fact, layer.attention, model.hidden)
    yield fact("post_attention_layernorm.weight", Role.NORM, model.hidden)
    if layer.post_norms:
        yield fact("pre_feedforward_layernorm.weight", Role.NORM, model.hidden)
        yield fact("post_feedforward_layernorm.weight", Role.NORM, model.hidden)
    if isinstance(layer.feed_forward, Dense):
        name = "feed_forward." if model.family == "llama4" else "mlp."
        yield from _dense_tensors(fact, name, layer.feed_forward, model.hidden)
    else:
        yield from _expert_tensors(fact, layer.feed_forward, model.hidden)


def parameters(model: ModelSpec) -> int:
    """Count the stored parameters of the model, without its prediction layers."""
    return sum(fact.elements for fact in outer_tensors(model)) + sum(
        count * sum(fact.elements for fact in layer_tensors(model, number)) for number, count in layer_kinds(model)
    )


def layer_kinds(model: ModelSpec) -> Iterator[tuple[int, int]]:
    """Yield the first number of each kind of layer with the count of layers alike."""
    first: dict[Layer, int] = {}
    counts = Counter(model.layers)
    for number, layer in enumerate(model.layers):
        first.setdefault(layer, number)
    yield from ((number, counts[layer]) for layer, number in first.items())


def active_parameters(model: ModelSpec) -> int:
    """Count the parameters one token's forward pass reads, the output head of a tied model counted once."""
    total = sum(fact.elements for fact in outer_tensors(model))
    for number, count in layer_kinds(model):
        layer = model.layers[number]
        total += count * sum(round(fact.elements * _active_share(layer, fact)) for fact in layer_tensors(model, number))
    return total


def _active_share(layer: Layer, fact: TensorFact) -> float:
    block = layer.feed_forward
    routed = fact.copies > 1 or fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
    if not isinstance(block, Experts) or not routed:
        return 1.0
    return block.per_token / block.experts


_Fact = Callable[..., TensorFact]


def _attention_tensors(fact: _Fact, attention: Attention, hidden: int) -> Iterator[TensorFact]:
    if attention.latent is not None:
        yield from _latent_tensors(fact, attention, attention.latent, hidden)
        return
    if attention.sinks:
        yield fact("self_attn.sinks", Role.SINK, attention.heads)
    query, kept = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    separate = ((Role.QUERY, query), (Role.KEY, kept), (Role.VALUE, kept))
    for role, rows in ((Role.QKV, query + 2 * kept),) if attention.fused_qkv else separate:
        yield fact(f"self_attn.{role}.weight", role, rows, hidden)
        if attention.qkv_bias:
            yield fact(f"self_attn.{role}.bias", role, rows)
    yield fact("self_attn.o_proj.weight", Role.ATTENTION_OUT, hidden, query)
    if attention.out_bias:
        yield fact("self_attn.o_proj.bias", Role.ATTENTION_OUT, hidden)
    if attention.qk_norm == "per_head":
        yield fact("self_attn.q_norm.weight", Role.NORM, attention.head_dim)
        yield fact("self_attn.k_norm.weight", Role.NORM, attention.head_dim)


def _latent_tensors(fact: _Fact, attention: Attention, latent: Latent, hidden: int) -> Iterator[TensorFact]:
    heads = attention.heads
    if latent.query_rank is None:
        yield fact("self_attn.q_proj.weight", Role.QUERY, heads * attention.head_dim, hidden)
    else:
        yield fact("self_attn.q_a_proj.weight", Role.QUERY_DOWN, latent.query_rank, hidden)
        yield fact("self_attn.q_a_layernorm.weight", Role.NORM, latent.query_rank)
        yield fact("self_attn.q_b_proj.weight", Role.QUERY_UP, heads * attention.head_dim, latent.query_rank)
    cached = latent.kv_rank + latent.rope_dim
    yield fact("self_attn.kv_a_proj_with_mqa.weight", Role.LATENT_DOWN, cached, hidden)
    yield fact("self_attn.kv_a_layernorm.weight", Role.NORM, latent.kv_rank)
    expanded = heads * (latent.nope_dim + latent.value_dim)
    yield fact("self_attn.kv_b_proj.weight", Role.LATENT_UP, expanded, latent.kv_rank)
    yield fact("self_attn.o_proj.weight", Role.ATTENTION_OUT, hidden, heads * latent.value_dim)


def _dense_tensors(fact: _Fact, name: str, block: Dense, hidden: int) -> Iterator[TensorFact]:
    wide = block.intermediate
    separate = ((Role.GATE, wide), (Role.UP, wide))
    for role, rows in ((Role.GATE_UP, 2 * wide),) if block.fused_gate_up else separate:
        yield fact(f"{name}{role}.weight", role, rows, hidden)
        if block.bias:
            yield fact(f"{name}{role}.bias", role, rows)
    yield fact(f"{name}down_proj.weight", Role.DOWN, hidden, block.intermediate)
    if block.bias:
        yield fact(f"{name}down_proj.bias", Role.DOWN, hidden)


_EXPERT_NAMES = {
    "mixtral": ("block_sparse_moe.gate.weight", "block_sparse_moe.experts.{expert}.", ("w1", "w3", "w2")),
    "qwen": ("mlp.gate.weight", "mlp.experts.{expert}.", ("gate_proj", "up_proj", "down_proj")),
    "deepseek": ("mlp.gate.weight", "mlp.experts.{expert}.", ("gate_proj", "up_proj", "down_proj")),
}
"""Router, expert prefix, and the names of the gate, up and down projections."""


def _expert_tensors(fact: _Fact, block: Experts, hidden: int) -> Iterator[TensorFact]:
    if block.layout == "llama4":
        yield fact("feed_forward.router.weight", Role.ROUTER, block.experts, hidden)
        fused = (block.experts, hidden, 2 * block.intermediate)
        yield fact("feed_forward.experts.gate_up_proj", Role.EXPERT_GATE_UP, *fused)
        yield fact("feed_forward.experts.down_proj", Role.EXPERT_DOWN, block.experts, block.intermediate, hidden)
        yield from _shared_tensors(fact, "feed_forward.shared_expert.", block.shared_intermediate, hidden)
        return
    if block.layout == "gpt_oss":
        yield from _gpt_oss_experts(fact, block, hidden)
        return
    router, prefix, (gate, up, down) = _EXPERT_NAMES[block.layout]
    yield fact(router, Role.ROUTER, block.experts, hidden)
    if block.routing.choice_bias:
        yield fact(f"mlp.gate.{CHOICE_BIAS}", Role.CHOICE_BIAS, block.experts)
    wide, narrow = (block.intermediate, hidden), (hidden, block.intermediate)
    yield fact(f"{prefix}{gate}.weight", Role.GATE, *wide, copies=block.experts)
    yield fact(f"{prefix}{up}.weight", Role.UP, *wide, copies=block.experts)
    yield fact(f"{prefix}{down}.weight", Role.DOWN, *narrow, copies=block.experts)
    if block.shared_intermediate:
        yield from _shared_tensors(fact, "mlp.shared_experts.", block.shared_intermediate, hidden)


def _shared_tensors(fact: _Fact, prefix: str, wide: int, hidden: int) -> Iterator[TensorFact]:
    yield fact(f"{prefix}gate_proj.weight", Role.SHARED_GATE, wide, hidden)
    yield fact(f"{prefix}up_proj.weight", Role.SHARED_UP, wide, hidden)
    yield fact(f"{prefix}down_proj.weight", Role.SHARED_DOWN, hidden, wide)


def _gpt_oss_experts(fact: _Fact, block: Experts, hidden: int) -> Iterator[TensorFact]:
    """Yield a router with bias and fused experts with biases; of a gate_up row, even elements are gate, odd ones up."""
    yield fact("mlp.router.weight", Role.ROUTER, block.experts, hidden)
    yield fact("mlp.router.bias", Role.ROUTER, block.experts)
    yield fact("mlp.experts.gate_up_proj", Role.EXPERT_GATE_UP, block.experts, hidden, 2 * block.intermediate)
    yield fact("mlp.experts.gate_up_proj_bias", Role.EXPERT_GATE_UP, block.experts, 2 * block.intermediate)
    yield fact("mlp.experts.down_proj", Role.EXPERT_DOWN, block.experts, block.intermediate, hidden)
    yield fact("mlp.experts.down_proj_bias", Role.EXPERT_DOWN, block.experts, hidden)
