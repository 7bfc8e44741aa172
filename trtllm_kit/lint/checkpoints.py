"""Lints a checkpoint for ``trtllm-build``: ``config.json`` and a safetensors file for each rank."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.errors import WeightFileError
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.read import read_json, sizes_in
from trtllm_kit.lint.report import Read, in_order, located
from trtllm_kit.plan.given.checkpoints import CheckpointFacts, checkpoint

CONFIG = "config.json"
_RANK = re.compile(r"rank(\d+)\.safetensors")


def lint_checkpoint(folder: Path, kind: str, context: Context) -> Read:
    """Lint a checkpoint; raises ``NotLinted`` and ``StorageError``."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else None
    facts = _facts(folder, config)
    release, said_by = context.settle(_release(config or {}))
    gpu = context.hardware.gpu if context.hardware is not None else None
    capability = gpu.compute_capability if gpu is not None and gpu.kind == "gpu" else None
    shown = {
        "architecture": facts.architecture or "not stated",
        "ranks": facts.ranks,
        "format": str(facts.quantization.get("quant_algo") or "16 bit"),
    }
    found = located(checkpoint(facts, release, capability), CONFIG if facts.config else "")
    return Read(kind, release, said_by, shown, in_order(found))


def _facts(folder: Path, config: dict[str, Any] | None) -> CheckpointFacts:
    sizes = {
        int(match[1]): size
        for name, size in sizes_in(folder, ".safetensors").items()
        if (match := _RANK.fullmatch(name))
    }
    broken = {rank: why for rank in sizes if (why := _broken(folder / f"rank{rank}.safetensors"))}
    if config is None:
        return CheckpointFacts(files=sizes, broken=broken, config=False)
    return CheckpointFacts(
        architecture=_text(config.get("architecture")),
        heads=_number(config.get("num_attention_heads")),
        kv_heads=_number(config.get("num_key_value_heads")),
        layers=_number(config.get("num_hidden_layers")),
        mapping=_section(config.get("mapping")),
        quantization=_section(config.get("quantization")),
        rope_kind=_rope(config.get("rotary_scaling") or config.get("rope_scaling")),
        files=sizes,
        broken=broken,
    )


def _broken(path: Path) -> str:
    """Return why a weight file's header cannot be read; empty when it can."""
    try:
        read_header(path)
    except WeightFileError as error:
        return error.why
    return ""


def _rope(section: object) -> str | None:
    if not isinstance(section, dict):
        return None
    return _text(section.get("rope_type")) or _text(section.get("type"))


def _release(config: dict[str, Any]) -> str | None:
    """Return the release that a converter of TensorRT-LLM wrote down; ModelOpt writes its own version elsewhere."""
    return _text(config.get("version"))


def _section(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
