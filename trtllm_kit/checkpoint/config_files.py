"""The small files of a checkpoint: ``config.json``, ``hf_quant_config.json``, and what is copied from the source.

Their shape is what ModelOpt 0.47 writes. TensorRT-LLM reads ``quantization`` of ``hf_quant_config.json``, and falls
back on ``quantization_config`` of ``config.json`` when its ``quant_method`` is ``modelopt``. That word names the
layout; the producer is the kit, and no loader asks for another name once ``quant_method`` is there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtllm_kit import __version__
from trtllm_kit.checkpoint.layout import half_format, quantised_modules, unquantised_modules, writes_kv_scales
from trtllm_kit.errors import ModelConfigError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.plan.plan import QuantizationPlan
from trtllm_kit.spec.load import parse_config, read_config
from trtllm_kit.spec.model import ModelSpec

CONFIG = "config.json"
COPIED = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Files a server may need beside the weights; those the source has are copied byte for byte."""

_PRODUCER = {"name": "trtllm-kit", "version": __version__}
_FLOAT8 = {"dynamic": False, "num_bits": 8, "type": "float"}


def read_small_files(source: Path) -> dict[str, bytes]:
    """Return the files of a source that shape the output, by name: its configuration and what is copied.

    A conversion reads them once and works on these bytes, whatever happens to the files. Raises what
    ``spec.load.read_config`` raises, and ``ModelConfigError`` for something that is no file in a file's place.
    """
    found = {CONFIG: read_config(source)}
    for name in COPIED:
        try:
            found[name] = read_file(source / name)
        except FileNotFoundError:
            continue
        except UnfitFile as error:
            raise ModelConfigError(
                f"{source / name} cannot be read",
                why=error.unfit,
                hint=f"put the model's own {name} there, or remove it",
            ) from None
        except OSError as error:
            raise storage_error(error, "reading the source") from None
    return found


def hf_quant_config(model: ModelSpec, formats: QuantizationPlan) -> dict[str, Any] | None:
    """Return what says how the weights are quantised, or None for plain weights.

    Plain weights with an FP8 KV cache have none: TensorRT-LLM refuses a file without ``quant_algo``, and takes the
    cache's format from its own YAML with a scale of 1.
    """
    if formats.weights.value != "fp8":
        return None
    return {
        "producer": _PRODUCER,
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": "FP8" if writes_kv_scales(formats) else None,
            "exclude_modules": list(unquantised_modules(model, quantised_modules(model, formats))),
        },
    }


def config_text(raw: bytes, model: ModelSpec, formats: QuantizationPlan) -> str:
    """Return the output's ``config.json``: that of the source (its bytes), with its 16-bit dtype and quantisation."""
    config = parse_config(raw, Path(CONFIG))
    if model.dtype == "float32":
        _set_dtype(config, {"BF16": "bfloat16", "F16": "float16"}[half_format(model)])
    quantised = hf_quant_config(model, formats)
    if quantised is not None:
        config["quantization_config"] = _inline(quantised["quantization"])
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _inline(quantization: dict[str, Any]) -> dict[str, Any]:
    group = {"input_activations": _FLOAT8, "weights": _FLOAT8, "targets": ["Linear"]}
    section: dict[str, Any] = {
        "config_groups": {"group_0": group},
        "ignore": quantization["exclude_modules"],
        "quant_algo": quantization["quant_algo"],
    }
    if quantization["kv_cache_quant_algo"] is not None:
        section["kv_cache_scheme"] = _FLOAT8
    return section | {"producer": _PRODUCER, "quant_method": "modelopt"}


def _set_dtype(config: dict[str, Any], dtype: str) -> None:
    sections = [config, *(section for section in (config.get("text_config"),) if isinstance(section, dict))]
    for section in sections:
        for key in ("torch_dtype", "dtype"):
            if key in section:
                section[key] = dtype
