"""How a checkpoint says what its numbers are: ``hf_quant_config.json``, ``quant_cfg.json``, ``quantization_config``.

Their shape is what ModelOpt 0.47 writes. TensorRT-LLM reads ``quantization`` of ``hf_quant_config.json``, and falls
back on ``quantization_config`` of ``config.json`` when its ``quant_method`` is ``modelopt``. That word names the
layout; the producer is the kit, and no loader asks for another name once ``quant_method`` is there.

FP8 in blocks of 128 x 128 is the exception: ``quantization_config`` is DeepSeek's own (``quant_method`` ``fp8``, with
``weight_block_size``), which every release from 1.0 on reads, and transformers and others with it. Beside it stands
a ``hf_quant_config.json``, which alone can name an FP8 KV cache, and which wins where a release finds both; not for
latent attention, where each release keeps its own list of what it reads in 16 bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit import __version__
from trtllm_kit.checkpoint.layout import quantised_modules, unquantised_modules, weight_formats
from trtllm_kit.plan.formats import Formats, number_format
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.plan.quantization import module_of
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUPED, PartFormat
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, algo_name, kv_algo
from trtllm_kit.upstream.quant_methods import block_shape

Section = dict[str, Any]
_PRODUCER = {"name": "trtllm-kit", "version": __version__}
_IN_BLOCKS = "fp8_block"


def hf_quant_config(model: ModelSpec, quantization: QuantizationPlan) -> Section | None:
    """Return what says how the weights are quantised, or None for plain weights and for DeepSeek's own format.

    Plain weights with an FP8 KV cache have none: TensorRT-LLM refuses a file without ``quant_algo``, and takes the
    cache's format from its own YAML with a scale of 1.
    """
    formats = quantization.formats
    if not formats.quantises or (formats.used == (_IN_BLOCKS,) and _has_latent_attention(model)):
        return None
    return {"producer": _PRODUCER, "quantization": _quantization(model, quantization)}


def layer_quant_config(model: ModelSpec, quantization: QuantizationPlan) -> Section | None:
    """Return ``quant_cfg.json``, which names the format of every layer; None unless layers differ.

    Releases of the time of 1.1 read the layers there alone, later ones in ``hf_quant_config.json`` too.
    """
    if not _is_mixed(quantization):
        return None
    section = _quantization(model, quantization)
    return {key: section[key] for key in ("quant_algo", "kv_cache_quant_algo", "quantized_layers")}


def inline_config(model: ModelSpec, quantization: QuantizationPlan) -> Section | None:
    """Return ``quantization_config`` of ``config.json``, or None for plain weights."""
    formats = quantization.formats
    if not formats.quantises:
        return None
    section = _quantization(model, quantization)
    if formats.used == (_IN_BLOCKS,):
        return _as_deepseek(section["exclude_modules"])
    inline: Section = {}
    if _is_mixed(quantization):
        inline["config_groups"] = _groups_of_layers(section["quantized_layers"])
        inline["quantized_layers"] = section["quantized_layers"]
    elif section["quant_algo"] in _WITH_GROUPS:
        group = _group(section["quant_algo"], section.get("group_size")) | {"targets": ["Linear"]}
        inline["config_groups"] = {"group_0": group}
    inline |= {"ignore": section.get("exclude_modules", []), "quant_algo": section["quant_algo"]}
    kept = section["kv_cache_quant_algo"]
    if kept is not None:
        inline["kv_cache_scheme"] = _numbers(8, "float") if kept == "FP8" else kept
    return inline | {"producer": _PRODUCER, "quant_method": "modelopt"}


_WITH_GROUPS = ("FP8", "NVFP4")
"""Algos for which ModelOpt 0.47 writes ``config_groups``, where all layers are alike."""


def _quantization(model: ModelSpec, quantization: QuantizationPlan) -> Section:
    formats = quantization.formats
    kept = kv_algo(formats.kv_cache) if formats.has_kv_scales else None
    if _is_mixed(quantization):
        layers = {
            module_of(name): _layer(chosen, formats) for name, chosen in weight_formats(model, quantization).items()
        }
        return {"quant_algo": MIXED_PRECISION, "kv_cache_quant_algo": kept, "quantized_layers": layers}
    layer = _layer(formats.used[0], formats)
    excluded = list(unquantised_modules(model, quantised_modules(model, quantization)))
    return {
        "quant_algo": layer.pop("quant_algo"),
        "kv_cache_quant_algo": kept,
        **layer,
        "exclude_modules": excluded,
    }


def _layer(name: PartFormat, formats: Formats) -> Section:
    """Return what is said of one layer's format; ModelOpt writes AWQ's fields for all int4."""
    section: Section = {"quant_algo": algo_name(name, "unified_hf")}
    if name in _WITH_GROUP_SIZE:
        section["group_size"] = number_format(name, formats.group_size).block
    if name in GROUPED:
        section |= {"has_zero_point": False, "pre_quant_scale": True}
    return section


_WITH_GROUP_SIZE = ("fp8_block", "nvfp4", "mxfp8", *GROUPED)


def _as_deepseek(excluded: list[str]) -> Section:
    return {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "modules_to_not_convert": excluded,
        "quant_method": "fp8",
        "weight_block_size": list(block_shape("fp8")),
    }


def _groups_of_layers(layers: Mapping[str, Section]) -> Section:
    """Return one group for each distinct format, its layers as targets."""
    alike: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for name, layer in layers.items():
        alike.setdefault(tuple(sorted(layer.items())), []).append(name)
    return {
        f"group_{number}": _group(dict(layer)["quant_algo"], dict(layer).get("group_size")) | {"targets": sorted(names)}
        for number, (layer, names) in enumerate(alike.items())
    }


def _group(algo: str, size: int | None) -> Section:
    """Return the numbers of weights and inputs as ModelOpt 0.47 describes an algo; of others their name alone."""
    sized = {} if size is None else {"group_size": size}
    described: dict[str, Section] = {
        "FP8": {"input_activations": _numbers(8, "float"), "weights": _numbers(8, "float")},
        "FP8_PER_CHANNEL_PER_TOKEN": {
            "input_activations": _numbers(8, "float"),
            "weights": _numbers(8, "float", strategy="channel"),
        },
        "NVFP4": {"input_activations": _numbers(4, "float", **sized), "weights": _numbers(4, "float", **sized)},
        "W4A16_AWQ": {"weights": _numbers(4, "int", **sized)},
        "W4A8_AWQ": {"input_activations": _numbers(8, "float", **sized), "weights": _numbers(4, "float", **sized)},
        "W8A16": {"weights": _numbers(8, "int")},
        "W8A8_SQ_PER_CHANNEL": {
            "input_activations": _numbers(8, "int"),
            "weights": _numbers(8, "int", strategy="channel"),
        },
        "MXFP8": {"input_activations": _numbers(8, "float", **sized), "weights": _numbers(8, "float", **sized)},
    }
    return described.get(algo, {"quant_algo": algo})


def _numbers(bits: int, kind: str, **more: Any) -> Section:
    return {"dynamic": False, "num_bits": bits, "type": kind, **more}


def _is_mixed(quantization: QuantizationPlan) -> bool:
    return len(quantization.formats.used) > 1


def _has_latent_attention(model: ModelSpec) -> bool:
    return any(attention.latent is not None for attention in model.attentions)
