"""Decides every tensor of the output, its format, its file and its origin; the dry run shows exactly this.

The layout is the unified Hugging Face one of NVIDIA ModelOpt 0.47 (``export_hf_checkpoint``), which TensorRT-LLM's
PyTorch backend loads: beside each quantised ``weight`` stand the scales of its format, ``weight_scale`` and the like,
and with a quantised KV cache ``k_proj.k_scale`` and ``v_proj.v_scale``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trtllm_kit.checkpoint.check import Extras
from trtllm_kit.checkpoint.encoding import encoded_as, unfit
from trtllm_kit.checkpoint.formats import is_calibrated, profile_name
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE
from trtllm_kit.checkpoint.header import StoredTensor, item_bytes
from trtllm_kit.checkpoint.matrix import Matrix, whole
from trtllm_kit.checkpoint.names import DTYPE_NAMES, part_name
from trtllm_kit.checkpoint.packed import parts_of
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.reader import SINGLE, WeightFolder
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.plan.quantization import fused_groups, module_of, tensor_formats
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import CHOICE_BIAS, Role, layer_tensors, model_tensors
from trtllm_kit.spec.vision import has_vision, vision_of
from trtllm_kit.units import GB

SHARD_BYTES = 5 * GB


def tensor_steps(
    model: ModelSpec, formats: QuantizationPlan, weights: WeightFolder, extras: Extras, shard_bytes: int = SHARD_BYTES
) -> tuple[TensorStep, ...]:
    """Return every tensor of the output in file order.

    Raises ``TensorError`` for weights whose shape their format does not take, and ``FormatNotMade`` for experts in one
    tensor that it does not; all of them at once.
    """
    chosen, stored = weight_formats(model, formats), weights.tensors
    size = formats.formats.group_size
    encoders = {name: encoded_as(wanted, stored[name].shape, size) for name, wanted in chosen.items()}
    raise_all(list(unfit((stored[name], encoder) for name, encoder in encoders.items())), weights.folder)
    partners = scale_partners(model, chosen)
    steps: list[TensorStep] = []
    for fact in model_tensors(model):
        for name in fact.names():
            if name not in chosen:
                steps.append(_plain(stored[name], model))
            else:
                partner = tuple(whole(stored[other]) for other in partners.get(name, ()))
                steps += _quantised(stored[name], encoders[name], partner, half_format(model))
    steps += [_plain(stored[name], model) for name in extras.copied]
    if writes_kv_scales(formats):
        steps += _kv_scale_steps(model, formats)
    return in_files(steps, shard_bytes)


def writes_kv_scales(formats: QuantizationPlan) -> bool:
    """Whether the checkpoint carries KV scales: TensorRT-LLM reads them of quantised checkpoints alone."""
    return formats.formats.has_kv_scales


def weight_formats(model: ModelSpec, formats: QuantizationPlan) -> dict[str, PartFormat]:
    """Return the format of every weight that leaves 16 bit, by the stored tensor's name."""
    return {
        name: by_fact[fact.name]
        for number in range(len(model.layers))
        for by_fact in [tensor_formats(model, number, formats.formats)]
        for fact in layer_tensors(model, number)
        if fact.name in by_fact
        for name in fact.names()
    }


def quantised_modules(model: ModelSpec, formats: QuantizationPlan) -> frozenset[str]:
    """Return the linear modules whose weights leave 16 bit."""
    return frozenset(map(module_of, weight_formats(model, formats)))


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


def scale_partners(model: ModelSpec, chosen: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the other weights that share the scale of a whole tensor, since the runtime keeps one for all of them.

    In NVFP4 these are q, k and v, and gate and up; in FP8 gate and up of a routed expert alone.
    """
    partners: dict[str, tuple[str, ...]] = {}
    for number, layer in enumerate(model.layers):
        routed = isinstance(layer.feed_forward, Experts)
        facts = {fact.role: fact for fact in layer_tensors(model, number) if not fact.is_bias}
        for roles in _ONE_SCALE:
            groups = zip(*(facts[role].names() for role in roles if role in facts), strict=True)
            for group in groups:
                of_group = chosen.get(group[0])
                if of_group == "nvfp4" or (of_group == "fp8" and roles == _GATE_AND_UP and routed):
                    partners |= {name: tuple(other for other in group if other != name) for name in group}
    return partners


_GATE_AND_UP = (Role.GATE, Role.UP)
_ONE_SCALE = ((Role.QUERY, Role.KEY, Role.VALUE), _GATE_AND_UP, (Role.SHARED_GATE, Role.SHARED_UP))


def _quantised(
    stored: StoredTensor, number_format: str, partners: tuple[Matrix, ...], half: str
) -> Iterator[TensorStep]:
    """Give a tensor the parts of its format, what calibration adds to them, and the factor its reader asks for.

    ``int4_wo`` goes by the word of AWQ, W4A16_AWQ, whose loader does not find a linear it fuses with no other (o, down)
    without ``pre_quant_scale``: factors of 1 change no input.
    """
    source = whole(stored)
    for part in parts_of(number_format, stored.shape):
        name = part_name(stored.name, part.name)
        yield TensorStep(name, part.dtype, part.shape, "", source, number_format, part.name, partners)
    if is_calibrated(number_format):
        name = part_name(stored.name, "input_scale")
        yield TensorStep(name, "F32", (), format=number_format, part="input_scale", measured=(name,))
    if profile_name(number_format) == "int4_wo":
        name = part_name(stored.name, PRE_QUANT_SCALE)
        yield TensorStep(name, half, stored.shape[-1:], format=number_format, part=PRE_QUANT_SCALE)


def _plain(stored: StoredTensor, model: ModelSpec) -> TensorStep:
    """Pass 16-bit and integer tensors through; round float32 to the model's 16-bit format.

    The choice bias of a router keeps float32: two experts may differ in less than 16 bit can tell.
    """
    kept = stored.dtype != "F32" or stored.name.endswith(f".{CHOICE_BIAS}")
    return TensorStep(stored.name, stored.dtype if kept else half_format(model), stored.shape, "", whole(stored))


def half_format(model: ModelSpec) -> str:
    """Return the 16-bit format of what is not quantised: the model's own, BF16 for a float32 model."""
    return "F16" if model.dtype == "float16" else DTYPE_NAMES["bfloat16"]


def _kv_scale_steps(model: ModelSpec, formats: QuantizationPlan) -> Iterator[TensorStep]:
    for number in range(len(model.layers)):
        if model.layers[number].attention.latent is not None:
            continue  # TensorRT-LLM reads no scale for a latent cache
        for short in ("k", "v"):
            part = f"{short}_scale"
            name = f"{model.prefix}layers.{number}.self_attn.{short}_proj.{part}"
            yield TensorStep(name, "F32", (), format=formats.kv_cache.value, part=part, measured=(name,))


def in_files(steps: Sequence[TensorStep], shard_bytes: int) -> tuple[TensorStep, ...]:
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
        for step in aligned(shard)
    )


def aligned(shard: Iterable[TensorStep]) -> list[TensorStep]:
    """Put what is no multiple of 4 bytes long last, FP8 behind 16-bit, so that every element lies on its own size."""
    return sorted(shard, key=lambda step: (step.nbytes % 4 != 0) * (3 - item_bytes(step.dtype)))
