"""What a LoRA adapter's ``adapter_config.json`` says, as far as a build needs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.frozen import Frozen
from trtllm_kit.strict_json import parse_json

CONFIG = "adapter_config.json"


class AdapterFacts(Frozen):
    """One adapter in the layout of Hugging Face PEFT."""

    folder: str
    rank: int
    layers: tuple[str, ...]
    """Last names of the linear layers that it changes, ``q_proj`` ...; none where the file gives a pattern."""


def adapter_facts(folder: str, config: Mapping[str, Any]) -> AdapterFacts | None:
    """Return the facts of an adapter's parsed configuration; None for one without a rank."""
    rank, named = config.get("r"), config.get("target_modules")
    if type(rank) is not int or rank < 1:
        return None
    layers = named if isinstance(named, list) and all(isinstance(one, str) for one in named) else []
    return AdapterFacts(folder=folder, rank=rank, layers=tuple(sorted({one.rpartition(".")[2] for one in layers})))


def read_adapters(folders: object) -> tuple[AdapterFacts, ...]:
    """Read the adapters of one folder or several; one that lies elsewhere, or cannot be read, is left out."""
    found = []
    for folder in (folders,) if isinstance(folders, str) else folders if isinstance(folders, tuple) else ():
        try:
            config = parse_json(read_file(Path(folder) / CONFIG))
        except (OSError, UnfitFile, ValueError):
            continue
        facts = adapter_facts(str(folder), config) if isinstance(config, dict) else None
        found += [] if facts is None else [facts]
    return tuple(found)
