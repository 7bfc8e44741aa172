"""The small files of a checkpoint: ``config.json``, and what is copied from the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.checkpoint.names import LAYER_QUANT_CONFIG, QUANT_CONFIG
from trtllm_kit.checkpoint.quant_config import inline_config
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


def read_small_files(source: Path) -> dict[str, bytes]:
    """Return the files of a source that shape the output, by name: its configurations and what is copied.

    A conversion reads them once and works on these bytes, whatever happens to the files. Raises what
    ``spec.load.read_config`` raises, and ``ModelConfigError`` for something that is no file in a file's place.
    """
    found = {CONFIG: read_config(source)}
    for name in (*COPIED, QUANT_CONFIG, LAYER_QUANT_CONFIG):
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


def config_text(raw: bytes, model: ModelSpec, formats: QuantizationPlan) -> str:
    """Return the output's ``config.json``: that of the source (its bytes), with its 16-bit dtype and quantisation."""
    config = parse_config(raw, Path(CONFIG))
    if model.dtype == "float32":
        _set_dtype(config, {"BF16": "bfloat16", "F16": "float16"}[half_format(model)])
    quantised = inline_config(model, formats)
    if quantised is not None:
        config["quantization_config"] = quantised
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _set_dtype(config: dict[str, Any], dtype: str) -> None:
    sections = [config, *(section for section in (config.get("text_config"),) if isinstance(section, dict))]
    for section in sections:
        for key in ("torch_dtype", "dtype"):
            if key in section:
                section[key] = dtype
