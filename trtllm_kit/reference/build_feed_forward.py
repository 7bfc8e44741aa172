"""Builds the feed-forward block of a layer, dense or of experts, from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.feed_forward import ClippedBlock, DenseBlock, ExpertsBlock, GatedBlock, Llama4Experts
from trtllm_kit.reference.layer_reader import LayerReader
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import gelu, gelu_tanh, silu
from trtllm_kit.reference.routing import Router
from trtllm_kit.reference.streamed import ExpertColumns
from trtllm_kit.spec.model import Dense, ModelSpec
from trtllm_kit.spec.tensors import Role, layer_tensors

FeedForward = GatedBlock | ExpertsBlock | Llama4Experts
_Modules = Mapping[Role, list[str]]

_ACTIVATIONS: dict[str, Callable[[F32], F32]] = {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}
_ROUTED = (Role.GATE, Role.UP, Role.DOWN)
_SHARED = (Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN)


def build_feed_forward(model: ModelSpec, number: int, read: LayerReader) -> FeedForward:
    """Build the block of decoder layer ``number`` (0-based)."""
    block, modules = model.layers[number].block, _modules(model, number)
    if isinstance(block, Dense):
        return _dense(model, block, modules, read)
    experts = _fused_experts(model, modules, read) if block.fused else _gated(model, modules, _ROUTED, read)
    shared = next(iter(_gated(model, modules, _SHARED, read)), None)
    linear = read.linear(modules[Role.ROUTER][0])
    if block.layout == "llama4" and shared is not None:
        return Llama4Experts(linear, experts, shared, block.per_token)
    choice_bias = read.weights.tensor(modules[Role.CHOICE_BIAS][0]) if Role.CHOICE_BIAS in modules else None
    return ExpertsBlock(Router(linear, block.per_token, block.routing, choice_bias), experts, shared)


def _modules(model: ModelSpec, number: int) -> _Modules:
    """Return the module names of a layer by role; the choice bias of a router is a tensor by itself."""
    facts = (fact for fact in layer_tensors(model, number) if not fact.is_bias or fact.role is Role.CHOICE_BIAS)
    return {fact.role: [name.removesuffix(".weight") for name in fact.names()] for fact in facts}


def _dense(model: ModelSpec, block: Dense, modules: _Modules, read: LayerReader) -> GatedBlock:
    if not block.fused_gate_up:
        return _gated(model, modules, _ROUTED, read)[0]
    gate, up = read.parts(modules[Role.GATE_UP][0], (block.intermediate, block.intermediate))
    return _block(model, gate, up, read.linear(modules[Role.DOWN][0]))


def _gated(
    model: ModelSpec, modules: _Modules, roles: tuple[Role, Role, Role], read: LayerReader
) -> tuple[GatedBlock, ...]:
    """Build one block of each gate, up and down; none when the layer has no such roles."""
    names = zip(*(modules.get(role, []) for role in roles), strict=True)
    return tuple(_block(model, *(read.linear(name) for name in of_one)) for of_one in names)


def _block(model: ModelSpec, gate: Linear, up: Linear, down: Linear) -> GatedBlock:
    if model.activation == "clipped_swiglu" and model.activation_limit is not None:
        return ClippedBlock(gate, up, down, model.activation_limit)
    return DenseBlock(gate, up, down, _ACTIVATIONS[model.activation])


class _Columns(NamedTuple):
    """Which columns of a fused gate_up row are gate, and which are up."""

    gate: slice
    up: slice


def _columns(model: ModelSpec, width: int) -> _Columns:
    """Return the order of the family: Llama 4 has two halves, gpt-oss takes turns."""
    if model.family == "gpt_oss":
        return _Columns(slice(0, None, 2), slice(1, None, 2))
    return _Columns(slice(0, width), slice(width, None))


def _fused_experts(model: ModelSpec, modules: _Modules, read: LayerReader) -> tuple[GatedBlock, ...]:
    """Split fused tensors, stored (experts, in features, out features), into one block an expert."""
    gate_up, down = _Fused(read, modules[Role.EXPERT_GATE_UP][0]), _Fused(read, modules[Role.EXPERT_DOWN][0])
    columns = _columns(model, gate_up.shape[-1] // 2)
    return tuple(
        _block(model, gate_up.linear(expert, columns.gate), gate_up.linear(expert, columns.up), down.linear(expert))
        for expert in range(gate_up.shape[0])
    )


_ALL = slice(None)
_OUTPUTS_FIRST = ("mxfp4",)
"""Formats of stacks that lie the other way round in the file: a part of the inputs is in all of an expert."""


class _Fused:
    """One projection of all experts."""

    def __init__(self, read: LayerReader, name: str) -> None:
        self.shape = read.weights.shape(name)
        self._whole = None if read.streamed else read.weights.tensor(name)
        self._weights = read.weights
        self._name = name
        self._bias = read.optional(f"{name}_bias")
        self._scale = read.weights.scale(f"{name}_input_scale")
        self._format = read.weights.number_format(name)

    def linear(self, expert: int, columns: slice = _ALL) -> Linear:
        """Return some output features of one expert; ``reference`` sees its input as ``name.expert``."""
        bias = None if self._bias is None else self._bias[expert, columns]
        return Linear(f"{self._name}.{expert}", self._weight(expert, columns), bias, self._scale, self._format)

    def _weight(self, expert: int, columns: slice) -> F32 | ExpertColumns:
        if self._whole is not None:
            return self._whole[expert, :, columns].T
        read = partial(self._weights.stack_rows, self._name, expert)
        return ExpertColumns(read, (self.shape[1], self.shape[2]), columns, whole=self._format in _OUTPUTS_FIRST)
