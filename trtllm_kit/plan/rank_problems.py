"""What stands in the way of an engine's checkpoint: everything at once, before a weight is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtllm_kit.errors import FormatNotMade, KitError, UnknownArchitecture
from trtllm_kit.plan.formats import number_format
from trtllm_kit.plan.parallelism import stages
from trtllm_kit.plan.passing import TO_RANKS
from trtllm_kit.plan.quantization import MADE_BY_MODELOPT, fused_groups, plain_weights_advice, tensor_formats
from trtllm_kit.plan.ranks import LAYOUT, RankOrder
from trtllm_kit.plan.searched import searched_problem
from trtllm_kit.plan.weights import input_features, input_parts
from trtllm_kit.spec.model import Experts
from trtllm_kit.spec.tensors import EXPERT, layer_tensors
from trtllm_kit.upstream.families import family_support
from trtllm_kit.upstream.trtllm_build import mode_of
from trtllm_kit.upstream.trtllm_checkpoint import (
    kv_formats,
    rank_format,
    rank_formats,
    rank_model,
    rope_kinds,
    spreads_remainder,
)

_ELSEWHERE = "set toolchain: llm-api with trtllm_version: 1.2.1, which loads the unified layout"


def rank_problems(order: RankOrder) -> list[KitError]:
    """Return what keeps an order from being laid out for its release; empty when nothing does."""
    found = [*_model_problems(order), *_heads(order)]
    return found or [*_split_problems(order), *_format_problems(order)]


def _heads(order: RankOrder) -> Iterator[KitError]:
    """Yield that the heads of a speculative mode are weights that the model's folder does not hold."""
    mode = mode_of(order.release, order.heads) if order.heads else None
    if mode is not None:
        yield FormatNotMade(
            f"trtkit convert does not write the drafting heads of mode {mode.mode}",
            why=f"they are weights of their own, in a checkpoint of {mode.heads[0]} that upstream's converter lays out",
            hint=f"make that checkpoint with the converter of {order.release}, then trtkit build CHECKPOINT --model "
            "MODEL; or speculation.kind: lookahead, which needs no heads",
        )


def _model_problems(order: RankOrder) -> Iterator[KitError]:
    model, release = order.model, order.release
    if rank_model(model.architecture, release) is None:
        loads = family_support(model.architecture, "trtllm-build", release) is not None
        why = "the kit does not know how its engines hold it" if loads else "that release builds no engine of it"
        yield UnknownArchitecture(
            f"trtkit does not lay out {model.architecture} for trtllm-build of {release}", why=why, hint=_ELSEWHERE
        )
        return
    if model.quantized_as is not None and not _handed_on(order):
        yield FormatNotMade(
            f"a quantised model ({model.quantized_as}) is not laid out for trtllm-build",
            why="ranks are cut from 16-bit weights, since what shares a scale in an engine has one of its own here",
            hint=f"{plain_weights_advice(model)}, or {_ELSEWHERE}",
        )
    kinds = {model.rope.kind} | {attention.rope.kind for attention in model.attentions if attention.rope}
    for kind in sorted(kinds - set(rope_kinds(release))):
        yield UnknownArchitecture(
            f"an engine of {release} cannot apply rope of kind {kind}",
            why=f"it applies {', '.join(rope_kinds(release))}, and would pass over {kind} without a word",
            hint=_ELSEWHERE,
        )
    if len({isinstance(layer.feed_forward, Experts) for layer in model.layers}) > 1:
        yield UnknownArchitecture(
            f"an engine of {release} cannot hold experts in some layers and none in others",
            why="its config.json has one section moe for all layers",
            hint=_ELSEWHERE,
        )


def _handed_on(order: RankOrder) -> bool:
    return order.formats.passed_through and order.formats.weights in TO_RANKS


def _split_problems(order: RankOrder) -> Iterator[KitError]:
    layers, count = len(order.model.layers), order.split.pipeline
    if layers % count and not spreads_remainder(order.release):
        yield FormatNotMade(
            f"{layers} layers cannot be shared by {count} pipeline stages in {order.release}",
            why=f"{layers} / {count} is not whole, and up to 0.18 the layers left over are lost",
            hint=f"set parallelism.pipeline to a divisor of {layers}, or trtllm_version to 0.19 or later",
        )


def _format_problems(order: RankOrder) -> Iterator[KitError]:
    formats, release = order.formats, order.release
    several = ("mixed",) if len(formats.used) > 1 else ()
    of_experts = {*_formats_of_experts(order), *several}
    for name in (*formats.used, *several):
        row = rank_format(name, release)
        if row is None:
            yield FormatNotMade(
                f"a checkpoint for trtllm-build of {release} cannot have {name} weights",
                why=f"the kit knows {', '.join(('bf16', *rank_formats(release)))} for it",
                hint=f"set quantization.weights to one of them, or {_ELSEWHERE.removeprefix('set ')}",
            )
        elif name in of_experts and not row.experts and _has_experts(order):
            yield FormatNotMade(
                f"routed experts cannot have {name} weights in an engine of {release}",
                why=f"{order.model.architecture} has experts, and its MoE kernels were not seen to read that format",
                hint="set quantization.weights: fp8",
            )
    caches = ("bf16", *kv_formats(release))
    if formats.kv_cache not in caches:
        yield FormatNotMade(
            f"trtkit does not make {formats.kv_cache} kv_cache for trtllm-build of {release}",
            why=f"it writes {', '.join(caches)} in this layout",
            hint="set quantization.kv_cache: fp8",
        )
    if set(formats.used) & set(MADE_BY_MODELOPT):
        yield from _searched_problems(order)
    yield from _exclusion_problems(order)
    cut = next(_cut_blocks(order), None)
    if cut is not None:
        yield cut


def _searched_problems(order: RankOrder) -> Iterator[KitError]:
    """Yield what keeps ModelOpt from exporting the ranks, or why it is not asked to."""
    searched = next(name for name in order.formats.used if name in MADE_BY_MODELOPT)
    row, split, layers = rank_format(searched, order.release), order.split, len(order.model.layers)
    several = len(order.formats.used) > 1
    if order.maker != "modelopt":
        yield FormatNotMade(
            f"trtkit does not make {searched} weights itself",
            why="NVIDIA ModelOpt searches them, "
            + ("and no second format beside them" if several else "and calibration.backend is native"),
            hint=f"set quantization.weights: {searched}" if several else "set calibration.backend: auto",
        )
    problem = searched_problem(order.model, order.formats, LAYOUT)
    if problem is not None and searched not in _formats_of_experts(order):
        yield problem
    if layers % split.pipeline and spreads_remainder(order.release):
        yield FormatNotMade(
            f"NVIDIA ModelOpt does not share {layers} layers by {split.pipeline} pipeline stages",
            why=f"{layers} / {split.pipeline} is not whole, and its exporter gives each stage as many",
            hint=f"set parallelism.pipeline to a divisor of {layers}",
        )
    heads = order.model.layers[0].attention.kv_heads
    if row is not None and not row.copies_heads and heads < split.tensor:
        yield FormatNotMade(
            f"{searched} weights cannot be cut into {split.tensor} tensor ranks",
            why=f"{heads} heads of keys and values are fewer than ranks, and ModelOpt copies none of this format",
            hint=f"set parallelism.tensor to at most {heads}, or quantization.weights: int4_awq",
        )


def _cut_blocks(order: RankOrder) -> Iterator[KitError]:
    """Yield the packed weights whose columns a rank would hold with half a block of their scales."""
    for number in range(len(order.model.layers)):
        chosen = tensor_formats(order.model, number, order.formats)
        for fact in (fact for fact in layer_tensors(order.model, number) if fact.name in chosen):
            row = rank_format(chosen[fact.name], order.release)
            step = number_format(chosen[fact.name], order.formats.group_size).block
            width, parts = input_features(fact), input_parts(fact, order.split)
            if row is not None and row.packed and width % (step * parts):
                yield FormatNotMade(
                    f"{fact.name} cannot be cut into whole {chosen[fact.name]} blocks on every rank",
                    why=f"{width:,} input features / {parts} ranks is no multiple of {step}",
                    hint=f'add "*{fact.name.removesuffix(".weight").rpartition(".")[2]}" to quantization.exclude, or '
                    "set parallelism.tensor to fewer ranks",
                )


def _exclusion_problems(order: RankOrder) -> Iterator[KitError]:
    """Refuse what one config.json cannot say for all stages, and half a block of row-wise FP8."""
    formats = [tensor_formats(order.model, number, order.formats) for number in range(len(order.model.layers))]
    parts = [_by_part(order, number, chosen) for number, chosen in enumerate(formats)]
    for local in range(max(len(stage) for stage in stages(order.model, order.split.pipeline))):
        held = [stage[local] for stage in stages(order.model, order.split.pipeline) if local < len(stage)]
        differing = [number for number in held if parts[number] != parts[held[0]]]
        if differing:
            yield FormatNotMade(
                f"layers {held[0]} and {differing[0]} have other formats than each other",
                why=f"both are layer {local} of their pipeline stage, and one config.json names it for all stages",
                hint="exclude the same layers of each stage, or set parallelism.pipeline: 1",
            )
            return
    if order.formats.weights == "fp8_rowwise":
        yield from (_half_block(part) for part in sorted({part for one in parts for part in _halves(one)}))


def _by_part(order: RankOrder, number: int, chosen: Mapping[str, str]) -> dict[str, str | None]:
    """Return the format of each linear weight of a layer by its name without the layer, None for 16 bit."""
    base = f"{order.model.prefix}layers.{number}."
    linear = (fact for group in fused_groups(order.model, number) for fact in group)
    return {fact.name.removeprefix(base): chosen.get(fact.name) for fact in linear}


def _has_experts(order: RankOrder) -> bool:
    return any(isinstance(layer.feed_forward, Experts) for layer in order.model.layers)


def _formats_of_experts(order: RankOrder) -> set[str]:
    layers = range(len(order.model.layers))
    chosen = (tensor_formats(order.model, number, order.formats).items() for number in layers)
    return {name for one in chosen for tensor, name in one if EXPERT in tensor}


def _halves(parts: Mapping[str, str | None]) -> Iterator[str]:
    for block in ("self_attn.", "mlp."):
        if len({chosen for name, chosen in parts.items() if name.startswith(block)}) > 1:
            yield block.removesuffix(".")


def _half_block(part: str) -> KitError:
    return FormatNotMade(
        f"fp8_rowwise cannot have a part of {part} in 16 bit",
        why="an engine quantises attention and feed-forward each as a whole, with the norm in front of it",
        hint=f"exclude '*{part}*' as a whole, or nothing of it",
    )
