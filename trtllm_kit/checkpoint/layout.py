"""Decides every tensor of the output, its format, its file and its origin; the dry run shows exactly this.

The layout is the unified Hugging Face one of NVIDIA ModelOpt 0.47 (``export_hf_checkpoint``), which TensorRT-LLM's
PyTorch backend loads: beside each quantised ``weight`` stand float32 scalars ``weight_scale`` and ``input_scale``,
and with an FP8 KV cache ``k_proj.k_scale`` and ``v_proj.v_scale``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trtllm_kit.checkpoint.check import Extras
from trtllm_kit.checkpoint.header import NUMPY_TYPES
from trtllm_kit.checkpoint.names import DTYPE_NAMES, scale_name
from trtllm_kit.checkpoint.reader import SINGLE, WeightFolder
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.plan.quantization import fused_groups, module_of, quantised_tensors
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.tensors import CHOICE_BIAS, Role, layer_tensors, model_tensors
from trtllm_kit.spec.vision import has_vision, vision_of
from trtllm_kit.units import GB

SHARD_BYTES = 5 * GB

Action = Literal["copy", "round", "quantise", "weight_scale", "input_scale", "kv_scale"]


@dataclass(frozen=True)
class TensorStep:
    """One tensor of the output."""

    name: str
    dtype: str
    """As safetensors spells it."""
    shape: tuple[int, ...]
    source: str
    """The source tensor it is made from; of a calibrated scale, what is measured."""
    action: Action
    file: str = ""
    scaled_with: str | None = None
    """Another source tensor that shares the weight scale, since the runtime keeps both under one."""

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * NUMPY_TYPES[self.dtype].itemsize


def tensor_steps(
    model: ModelSpec, formats: QuantizationPlan, weights: WeightFolder, extras: Extras, shard_bytes: int = SHARD_BYTES
) -> tuple[TensorStep, ...]:
    """Return every tensor of the output in file order."""
    quantised = quantised_modules(model, formats)
    pairs = _expert_pairs(model) if quantised else {}
    steps: list[TensorStep] = []
    for fact in model_tensors(model):
        for name in fact.names():
            if fact.is_bias or module_of(name) not in quantised:
                steps.append(_plain(name, weights.tensors[name].dtype, fact.shape, model))
            else:
                steps += _quantised(name, fact.shape, pairs.get(name))
    steps += [_plain(name, weights.tensors[name].dtype, weights.tensors[name].shape, model) for name in extras.copied]
    if writes_kv_scales(formats):
        steps += _kv_scale_steps(model)
    return _in_files(steps, shard_bytes)


def writes_kv_scales(formats: QuantizationPlan) -> bool:
    """Whether the checkpoint carries KV scales: TensorRT-LLM reads them of quantised checkpoints alone."""
    return formats.weights.value == "fp8" and formats.kv_cache.value == "fp8"


def quantised_modules(model: ModelSpec, formats: QuantizationPlan) -> frozenset[str]:
    """Return the linear modules whose weights become FP8, as ``plan.quantization`` chooses them."""
    if formats.weights.value != "fp8":
        return frozenset()
    return frozenset(
        module_of(name)
        for number in range(len(model.layers))
        for chosen in [quantised_tensors(model, number, formats.exclude.value)]
        for fact in layer_tensors(model, number)
        if fact.name in chosen
        for name in fact.names()
    )


def unquantised_modules(model: ModelSpec, quantised: frozenset[str]) -> tuple[str, ...]:
    """Return the modules an FP8 checkpoint names as excluded, sorted.

    They are the ends, routers, vision, prediction layers, and what was kept.
    """
    names = {module_of(model.head_name)}
    if model.embedding_scale == 1.0:  # ModelOpt does not name an embedding that multiplies
        names.add(f"{model.prefix}embed_tokens")
    if has_vision(model):
        names |= {f"{prefix.removesuffix('.')}*" for prefix in vision_of(model).prefixes}
    names |= {f"{model.prefix}layers.{len(model.layers) + more}*" for more in range(model.prediction_layers)}
    for number in range(len(model.layers)):
        facts = (fact for fact in layer_tensors(model, number) if fact.role is Role.ROUTER and not fact.is_bias)
        names |= {module_of(fact.name) for fact in facts}
        linear = {module_of(name) for group in fused_groups(model, number) for fact in group for name in fact.names()}
        kept = linear - quantised
        names |= kept | {module.rpartition(".experts.")[0] + ".experts" for module in kept if ".experts." in module}
    return tuple(sorted(names))


def _expert_pairs(model: ModelSpec) -> dict[str, str]:
    """Return gate and up weights of each routed expert as partners: the runtime has one scale for both of them."""
    partners: dict[str, str] = {}
    for number, layer in enumerate(model.layers):
        if isinstance(layer.feed_forward, Experts) and not layer.feed_forward.fused:
            weights = {fact.role: fact for fact in layer_tensors(model, number)}
            pairs = zip(weights[Role.GATE].names(), weights[Role.UP].names(), strict=True)
            for gate, up in pairs:
                partners |= {gate: up, up: gate}
    return partners


def _quantised(name: str, shape: tuple[int, ...], partner: str | None) -> Iterator[TensorStep]:
    measured = f"largest input of {module_of(name)}"
    yield TensorStep(name, "F8_E4M3", shape, name, "quantise", scaled_with=partner)
    yield TensorStep(scale_name(name, "weight_scale"), "F32", (), name, "weight_scale", scaled_with=partner)
    yield TensorStep(scale_name(name, "input_scale"), "F32", (), measured, "input_scale")


def _plain(name: str, stored: str, shape: tuple[int, ...], model: ModelSpec) -> TensorStep:
    """Pass 16-bit and integer tensors through; round float32 to the model's 16-bit format.

    The choice bias of a router keeps float32: two experts may differ in less than 16 bit can tell.
    """
    if stored != "F32" or name.endswith(f".{CHOICE_BIAS}"):
        return TensorStep(name, stored, shape, name, "copy")
    return TensorStep(name, half_format(model), shape, name, "round")


def half_format(model: ModelSpec) -> str:
    """Return the 16-bit format of what is not quantised: the model's own, BF16 for a float32 model."""
    return "F16" if model.dtype == "float16" else DTYPE_NAMES["bfloat16"]


def _kv_scale_steps(model: ModelSpec) -> Iterator[TensorStep]:
    for number in range(len(model.layers)):
        if model.layers[number].attention.latent is not None:
            continue  # TensorRT-LLM reads no scale for a latent cache
        for short in ("k", "v"):
            module = f"{model.prefix}layers.{number}.self_attn.{short}_proj"
            what = f"largest {'key' if short == 'k' else 'value'} of layer {number}"
            yield TensorStep(f"{module}.{short}_scale", "F32", (), what, "kv_scale")


def _in_files(steps: Sequence[TensorStep], shard_bytes: int) -> tuple[TensorStep, ...]:
    """Fill shards in order up to ``shard_bytes`` (a larger tensor has one alone), and name them."""
    shards: list[list[TensorStep]] = [[]]
    room = shard_bytes
    for step in steps:
        if shards[-1] and step.nbytes > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(step)
        room -= step.nbytes
    count = len(shards)
    return tuple(
        replace(step, file=SINGLE if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors")
        for number, shard in enumerate(shards, start=1)
        for step in _aligned(shard)
    )


def _aligned(shard: Iterable[TensorStep]) -> list[TensorStep]:
    """Put what is no multiple of 4 bytes long last, FP8 behind 16-bit, so that every element lies on its own size."""
    return sorted(shard, key=lambda step: (step.nbytes % 4 != 0) * (3 - NUMPY_TYPES[step.dtype].itemsize))
