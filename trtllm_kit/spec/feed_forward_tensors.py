"""The weights of feed-forward blocks: dense ones, and experts in every layout that checkpoints have them in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_kit.spec.model import Dense, Experts, FeedForward
from trtllm_kit.spec.tensor_fact import CHOICE_BIAS, FactOf, Role, TensorFact

_BASES = {"llama4": "feed_forward.", "nemotron_h": "mixer."}
"""Where the block of a family stands in its layer, unless that is ``mlp.``."""


def feed_forward_tensors(fact: FactOf, block: FeedForward, hidden: int, family: str) -> Iterator[TensorFact]:
    """Yield the tensors of one layer's feed-forward block."""
    if isinstance(block, Dense):
        yield from _dense_tensors(fact, _BASES.get(family, "mlp."), block, hidden)
    else:
        yield from _expert_tensors(fact, block, hidden)


def _dense_tensors(fact: FactOf, name: str, block: Dense, hidden: int) -> Iterator[TensorFact]:
    wide = block.intermediate
    separate = ((Role.GATE, wide), (Role.UP, wide)) if block.gated else ((Role.UP, wide),)
    for role, rows in ((Role.GATE_UP, 2 * wide),) if block.fused_gate_up else separate:
        yield fact(f"{name}{role}.weight", role, rows, hidden)
        if block.bias:
            yield fact(f"{name}{role}.bias", role, rows)
    yield fact(f"{name}down_proj.weight", Role.DOWN, hidden, block.intermediate)
    if block.bias:
        yield fact(f"{name}down_proj.bias", Role.DOWN, hidden)


class _Apart(NamedTuple):
    """How a layout names experts that are tensors of their own."""

    router: str
    prefix: str
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    """Gate, up and down projection."""
    choice_bias: str = f"mlp.gate.{CHOICE_BIAS}"
    shared: str = "mlp.shared_experts."
    shared_parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    latent: tuple[str, str] = ("mixer.fc1_latent_proj", "mixer.fc2_latent_proj")
    """What squeezes a token before the experts, and what expands their result."""
    latent_norm: str | None = None
    """The norm before the latter (Kimi-K3)."""


_W = ("w1", "w3", "w2")
_APART = {
    "mixtral": _Apart("block_sparse_moe.gate.weight", "block_sparse_moe.experts.{expert}.", ("w1", "w3", "w2")),
    "minimax_m2": _Apart(
        "block_sparse_moe.gate.weight",
        "block_sparse_moe.experts.{expert}.",
        ("w1", "w3", "w2"),
        choice_bias=f"block_sparse_moe.{CHOICE_BIAS}",
    ),
    "qwen": _Apart("mlp.gate.weight", "mlp.experts.{expert}."),
    "deepseek": _Apart("mlp.gate.weight", "mlp.experts.{expert}."),
    "nemotron_h": _Apart(
        "mixer.gate.weight",
        "mixer.experts.{expert}.",
        choice_bias=f"mixer.gate.{CHOICE_BIAS}",
        shared="mixer.shared_experts.",
    ),
    "minimax_m3": _Apart(
        "block_sparse_moe.gate.weight",
        "block_sparse_moe.experts.{expert}.",
        _W,
        choice_bias=f"block_sparse_moe.{CHOICE_BIAS}",
        shared="block_sparse_moe.shared_experts.",
    ),
    "deepseek_v4": _Apart(
        "ffn.gate.weight",
        "ffn.experts.{expert}.",
        _W,
        choice_bias="ffn.gate.bias",
        shared="ffn.shared_experts.",
        shared_parts=_W,
    ),
    "kimi_linear": _Apart(
        "block_sparse_moe.gate.weight",
        "block_sparse_moe.experts.{expert}.",
        _W,
        choice_bias=f"block_sparse_moe.gate.{CHOICE_BIAS}",
        shared="block_sparse_moe.shared_experts.",
        latent=("block_sparse_moe.routed_expert_down_proj", "block_sparse_moe.routed_expert_up_proj"),
        latent_norm="block_sparse_moe.routed_expert_norm.weight",
    ),
    "step3": _Apart("moe.gate.weight", "moe.experts.{expert}.", choice_bias="moe.router_bias", shared="share_expert."),
}


def _expert_tensors(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    fused = {
        "llama4": _llama4_experts,
        "gpt_oss": _gpt_oss_experts,
        "qwen3_vl": _qwen_fused_experts,
        "qwen3_5": _qwen_fused_experts,
        "gemma4": _gemma4_experts,
    }
    make = fused.get(block.layout)
    yield from _apart_experts(fact, block, hidden) if make is None else make(fact, block, hidden)


def _apart_experts(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    names = _APART[block.layout]
    gate, up, down = names.parts
    yield fact(names.router, Role.ROUTER, block.experts, hidden)
    if block.routing.choice_bias:
        yield fact(names.choice_bias, Role.CHOICE_BIAS, block.experts)
    if block.routing.table:
        yield fact("ffn.gate.tid2eid", Role.WORD_EXPERTS, block.routing.table, block.per_token)
    inputs = hidden if block.latent is None else block.latent
    wide, narrow = (block.intermediate, inputs), (inputs, block.intermediate)
    if block.gated:
        yield fact(f"{names.prefix}{gate}.weight", Role.GATE, *wide, copies=block.experts)
    yield fact(f"{names.prefix}{up}.weight", Role.UP, *wide, copies=block.experts)
    yield fact(f"{names.prefix}{down}.weight", Role.DOWN, *narrow, copies=block.experts)
    if block.latent is not None:
        squeeze, expand = names.latent
        yield fact(f"{squeeze}.weight", Role.EXPERT_LATENT_DOWN, block.latent, hidden)
        yield fact(f"{expand}.weight", Role.EXPERT_LATENT_UP, hidden, block.latent)
        if names.latent_norm is not None:
            yield fact(names.latent_norm, Role.NORM, block.latent)
    yield from _shared_tensors(fact, names.shared, block, hidden, names.shared_parts)


def _shared_tensors(
    fact: FactOf,
    prefix: str,
    block: Experts,
    hidden: int,
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Iterator[TensorFact]:
    wide, (gate, up, down) = block.shared_intermediate, parts
    if not wide:
        return
    if block.gated:
        yield fact(f"{prefix}{gate}.weight", Role.SHARED_GATE, wide, hidden)
    yield fact(f"{prefix}{up}.weight", Role.SHARED_UP, wide, hidden)
    yield fact(f"{prefix}{down}.weight", Role.SHARED_DOWN, hidden, wide)


def _llama4_experts(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    wide = block.intermediate
    yield fact("feed_forward.router.weight", Role.ROUTER, block.experts, hidden)
    yield fact("feed_forward.experts.gate_up_proj", Role.EXPERT_GATE_UP, block.experts, hidden, 2 * wide)
    yield fact("feed_forward.experts.down_proj", Role.EXPERT_DOWN, block.experts, wide, hidden)
    yield from _shared_tensors(fact, "feed_forward.shared_expert.", block, hidden)


def _gpt_oss_experts(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    """Yield a router with bias and fused experts with biases; of a gate_up row, even elements are gate, odd ones up."""
    yield fact("mlp.router.weight", Role.ROUTER, block.experts, hidden)
    yield fact("mlp.router.bias", Role.ROUTER, block.experts)
    yield fact("mlp.experts.gate_up_proj", Role.EXPERT_GATE_UP, block.experts, hidden, 2 * block.intermediate)
    yield fact("mlp.experts.gate_up_proj_bias", Role.EXPERT_GATE_UP, block.experts, 2 * block.intermediate)
    yield fact("mlp.experts.down_proj", Role.EXPERT_DOWN, block.experts, block.intermediate, hidden)
    yield fact("mlp.experts.down_proj_bias", Role.EXPERT_DOWN, block.experts, hidden)


def _qwen_fused_experts(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    """Yield Qwen3.5's fused experts, inputs last, and its shared one with a switch; Qwen3-VL has inputs first."""
    wide, last = block.intermediate, block.layout == "qwen3_5"
    up, down = ((2 * wide, hidden), (hidden, wide)) if last else ((hidden, 2 * wide), (wide, hidden))
    yield fact("mlp.gate.weight", Role.ROUTER, block.experts, hidden)
    yield fact("mlp.experts.gate_up_proj", Role.EXPERT_GATE_UP, block.experts, *up, inputs_last=last)
    yield fact("mlp.experts.down_proj", Role.EXPERT_DOWN, block.experts, *down, inputs_last=last)
    yield from _shared_tensors(fact, "mlp.shared_expert.", block, hidden)
    if block.shared_gated:
        yield fact("mlp.shared_expert_gate.weight", Role.SHARED_SWITCH, 1, hidden)


def _gemma4_experts(fact: FactOf, block: Experts, hidden: int) -> Iterator[TensorFact]:
    """Yield the dense block that every token visits, and beside it the experts with norms of their own."""
    wide = block.intermediate
    yield from _shared_tensors(fact, "mlp.", block, hidden)
    yield fact("router.scale", Role.NORM, hidden)
    yield fact("router.per_expert_scale", Role.PER_EXPERT, block.experts)
    yield fact("router.proj.weight", Role.ROUTER, block.experts, hidden)
    shape = (block.experts, 2 * wide, hidden)
    yield fact("experts.gate_up_proj", Role.EXPERT_GATE_UP, *shape, inputs_last=True)
    yield fact("experts.down_proj", Role.EXPERT_DOWN, block.experts, hidden, wide, inputs_last=True)
    for name in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"):
        yield fact(f"{name}.weight", Role.NORM, hidden)
