"""How a checkpoint that comes quantised is stored: ``quantization_config``, and ModelOpt's file beside it.

``hf_quant_config.json`` wins where both speak, as in TensorRT-LLM's own loader. What is read here is a claim; the
tensors are held against it before a byte is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.profile_formats import GROUP_SIZES, GROUPED, KvFormat, PartFormat, WeightFormat
from trtllm_kit.spec.tensors import NOT_LINEAR, TensorFact, layer_kinds, layer_tensors
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, format_named
from trtllm_kit.upstream.quant_methods import block_shape

Section = Mapping[str, Any]
MODELOPT = "modelopt"
EXCLUDE_KEYS = ("exclude_modules", "ignore", "modules_to_not_convert")
"""What makers call the list of modules that stay in 16 bit."""
EXPERT_TYPE = "expert_dtype"
"""What ``config.json`` beside the section says of the routed experts, where they have a format of their own."""
_BLOCK = list(block_shape("fp8"))


def unsound_list(section: Section) -> str | None:
    """Return the key of a list of modules that is no list of names, or None."""
    return next((key for key in EXCLUDE_KEYS if not _is_list_of_names(section.get(key))), None)


def read_stored(model: ModelSpec, method: str, inline: Section, beside: Section | None) -> StoredFormats:
    """Return how weights are stored by ``quantization_config`` and by ``quantization`` of ``hf_quant_config.json``."""
    section = dict(inline) | (inline["quantization"] if isinstance(inline.get("quantization"), dict) else {})
    scheme = _scheme(method, section)
    if beside is not None and isinstance(beside.get("quant_algo"), str):
        section, scheme = dict(beside), beside["quant_algo"]
    patterns = [pattern for key in EXCLUDE_KEYS for pattern in section.get(key) or ()]
    read = _layers(model, section.get("quantized_layers", inline.get("quantized_layers")))
    if scheme != MIXED_PRECISION:
        read = _grouped(_weights(model, scheme), section)
    if _weights(model, _fp8(inline) if method == "fp8" else "") == "fp8_block":
        read, patterns = _over_blocks(model, read, inline, patterns)
    return StoredFormats(
        method=method,
        scheme=f"{scheme}{read.unread}",
        weights=None if read.unread else read.weights,
        kv_cache=_kv_cache(section),
        exclude=kept_patterns(model, patterns),
        layers=read.layers,
        group_size=read.group_size,
    )


def _over_blocks(model: ModelSpec, read: _Read, inline: Section, patterns: list[str]) -> tuple[_Read, list[str]]:
    """Return what a file in FP8 blocks holds whose experts have another format: NVFP4, or MXFP4 (DeepSeek-V4).

    The modules that ModelOpt then names as left out have kept their blocks.
    """
    if read.weights == "mixed":
        return read._replace(layers=(*read.layers, *_REST_IN_BLOCKS)), []
    if inline.get(EXPERT_TYPE) != "fp4":
        return read, patterns
    routed = {
        f"{model.prefix}layers.*{_behind_number(fact, number, model).split('.0.')[0]}.*"
        for number, _ in layer_kinds(model)
        for fact in layer_tensors(model, number)
        if fact.copies > 1
    }
    experts: tuple[tuple[str, PartFormat], ...] = tuple((pattern, "mxfp4") for pattern in sorted(routed))
    return read._replace(weights="mixed", layers=(*experts, *_REST_IN_BLOCKS)), patterns


_REST_IN_BLOCKS: tuple[tuple[str, PartFormat], ...] = (("*", "fp8_block"),)


class _Read(NamedTuple):
    """What a section says of the weights."""

    weights: WeightFormat | None
    layers: tuple[tuple[str, PartFormat], ...] = ()
    group_size: int | None = None
    unread: str = ""
    """What of it no reader of the kit takes, behind the scheme's word; empty when all can be passed through."""


def _grouped(weights: WeightFormat | None, section: Section) -> _Read:
    """Return a format that all layers have, with the size of its groups where it has any."""
    if weights not in GROUPED:
        return _Read(weights)
    size = section.get("group_size", GROUP_SIZES[0])
    if size not in GROUP_SIZES:
        return _Read(weights, unread=f" in groups of {size}")
    return _Read(weights, group_size=size, unread=" with zero points" if section.get("has_zero_point") else "")


def _layers(model: ModelSpec, listed: object) -> _Read:
    """Return the format of each linear layer of ``quantized_layers``, by patterns; the groups of all have one size."""
    if not isinstance(listed, dict) or not listed or not all(isinstance(one, dict) for one in listed.values()):
        return _Read(None, unread=" without quantized_layers")
    modules: dict[PartFormat, list[str]] = {}
    sizes: set[int] = set()
    for name, section in listed.items():
        algo = str(section.get("quant_algo"))
        read = _grouped(_weights(model, algo), section)
        if read.weights is None or read.unread:
            return _Read(None, unread=f" with {algo}{read.unread}")
        modules.setdefault(cast("PartFormat", read.weights), []).append(name)
        sizes |= {read.group_size} if read.group_size else set()
    if len(sizes) > 1:
        return _Read(None, unread=f" in groups of {' and '.join(map(str, sorted(sizes)))}")
    named = {chosen: kept_patterns(model, names) for chosen, names in modules.items()}
    layers = tuple((pattern, chosen) for chosen, patterns in named.items() for pattern in patterns)
    return _Read("mixed", layers, next(iter(sizes), None))


def _scheme(method: str, section: Section) -> str:
    named = section.get("quant_algo")
    if isinstance(named, str):
        return named
    return _SCHEMES.get(method, _by_bits)(section)


def _fp8(section: Section) -> str:
    block = section.get("weight_block_size")
    if block is None:
        return "float8 tensor"
    return "FP8_BLOCK_SCALES" if block == _BLOCK else f"float8 in blocks of {block}"


def _bitsandbytes(section: Section) -> str:
    return "4 bits" if section.get("load_in_4bit") or section.get("_load_in_4bit") else "8 bits"


def _by_bits(section: Section) -> str:
    bits = section.get("bits", section.get("w_bit"))
    return f"{bits} bits" if isinstance(bits, int) else ""


def _compressed(section: Section) -> str:
    """Return kind, bits and strategy of the first group's weights, e.g. ``float8 channel`` or ``int4 group``."""
    if section.get("format") == "mxfp4-pack-quantized":
        return "MXFP4"
    groups = section.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return str(section.get("format") or "")
    return f"{weights.get('type')}{weights.get('num_bits')} {weights.get('strategy')}"


_SCHEMES: Mapping[str, Callable[[Section], str]] = {
    "fp8": _fp8,
    "mxfp4": lambda _: "MXFP4",
    "compressed-tensors": _compressed,
    "bitsandbytes": _bitsandbytes,
}
"""By the method; of others, AWQ and GPTQ among them, the bits."""


def _weights(model: ModelSpec, scheme: str) -> WeightFormat | None:
    """Return the profile's word for a scheme; MXFP4 is of families whose routed experts alone have it."""
    if scheme == "MXFP4":
        return "mxfp4" if model.family in ("gpt_oss", "kimi_linear") else None
    return cast("WeightFormat | None", format_named(_ALSO.get(scheme, scheme)))


_ALSO = {"fp8_pb_wo": "FP8_BLOCK_SCALES", "FP8_PB_WO": "FP8_BLOCK_SCALES"}
"""What ModelOpt writes where TensorRT-LLM has another word, and reads both."""


def _kv_cache(section: Section) -> KvFormat:
    """Return the KV format: a word, or in ``kv_cache_scheme`` the bits of a number."""
    named = section.get("kv_cache_quant_algo") or section.get("kv_cache_scheme")
    if isinstance(named, dict):
        named = f"{named.get('type')}{named.get('num_bits')}"
    return _KV.get(str(named), "bf16")


_KV: Mapping[str, KvFormat] = {
    "FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8", "float8": "fp8", "float4": "nvfp4", "int8": "int8",
}  # fmt: skip
_NUMBERED = r"(?s)^(.*\blayers\.)(\d+)(.*)$"


def kept_patterns(model: ModelSpec, patterns: list[str]) -> tuple[str, ...]:
    """Return the patterns that name linear layers of the model, ``*`` for a number that all its layers share.

    A file names each layer by itself, with norms and routers that are never quantised: hundreds of names say what
    four patterns do. A name without ``*`` stands for its module and for all below it.
    """
    kinds = _kinds(model)
    numbered: dict[tuple[str, str], set[int]] = {}
    kept: list[str] = []
    for pattern in dict.fromkeys(_without_expressions(model, kinds, patterns)):
        match = re.match(_NUMBERED, pattern)
        if match is None:
            kept += [form for form in _forms(pattern) if _names_any(model, kinds, form)]
        elif fnmatchcase(f"{model.prefix}layers.", match[1]):
            number, behind = match[2], match[3]
            numbers = {int(number)}
            if behind.startswith("*"):  # layers.6* names layers 6 and 60 to 69
                numbers = {one for one in range(len(model.layers)) if str(one).startswith(number)}
                behind = f".{behind}"
            numbered.setdefault((match[1], behind), set()).update(numbers)
    for (before, behind), numbers in numbered.items():
        kept += _collapsed(before, behind, numbers, kinds)
    return tuple(dict.fromkeys(kept))


def _without_expressions(
    model: ModelSpec, kinds: Mapping[tuple[str, ...], set[int]], patterns: list[str]
) -> Iterator[str]:
    """Yield patterns, and the modules that a regular expression names (``re:``, compressed-tensors) in its place."""
    for pattern in patterns:
        if not pattern.startswith(_EXPRESSION):
            yield pattern
            continue
        found = re.compile(pattern.removeprefix(_EXPRESSION))
        for names, layers in kinds.items():
            for number in layers:
                base = f"{model.prefix}layers.{number}"
                yield from (base + name for name in names if found.match(base + name))


_EXPRESSION = "re:"


def _collapsed(before: str, behind: str, numbers: set[int], kinds: Mapping[tuple[str, ...], set[int]]) -> Iterator[str]:
    """Yield one pattern for all layers that have such modules, or one for each that is named."""
    for form in _forms(behind):
        have = set[int]().union(*(layers for names, layers in kinds.items() if _matches(names, form)))
        named = numbers & have
        if named and named == have:
            yield f"{before}*{form}"
        else:
            yield from (f"{before}{number}{form}" for number in sorted(named))


def _forms(pattern: str) -> tuple[str, ...]:
    return (pattern,) if pattern.endswith("*") else (pattern, f"{pattern}.*")


def _kinds(model: ModelSpec) -> dict[tuple[str, ...], set[int]]:
    """Return, for each kind of layer, its linear modules as they are named behind the number, and its layers."""
    return {
        tuple(_behind_number(fact, first, model) for fact in layer_tensors(model, first) if is_linear(fact)): {
            number for number, layer in enumerate(model.layers) if layer == model.layers[first]
        }
        for first, _ in layer_kinds(model)
    }


def _behind_number(fact: TensorFact, number: int, model: ModelSpec) -> str:
    """Return the module's name with expert 0 standing for all; a pattern that names one expert alone is not met."""
    name = next(fact.names()).removesuffix(".weight")
    return name.removeprefix(f"{model.prefix}layers.{number}")


def is_linear(fact: TensorFact) -> bool:
    """Whether a tensor of a layer is the weight of a linear layer that a checkpoint may have quantised."""
    return len(fact.shape) > 1 and not fact.is_bias and fact.role not in NOT_LINEAR


def _matches(names: tuple[str, ...], form: str) -> bool:
    return any(fnmatchcase(name, form) for name in names)


def _names_any(model: ModelSpec, kinds: Mapping[tuple[str, ...], set[int]], pattern: str) -> bool:
    return any(
        fnmatchcase(f"{model.prefix}layers.{min(layers)}{name}", pattern)
        for names, layers in kinds.items()
        for name in names
    )


def _is_list_of_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))
