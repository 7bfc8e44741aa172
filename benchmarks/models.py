"""The models that measurements were made of, as specs; ``models.yaml`` holds what their configs say of sizes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec

PATH = Path(__file__).with_name("models.yaml")


@cache
def model_spec(name: str) -> ModelSpec:
    """Return the spec of a model of ``models.yaml``."""
    return read_model_spec(_config(name), f"{PATH.name}: {name}")


def _config(name: str) -> dict[str, Any]:
    """Return what a config.json would hold; ``repeat`` stands for a list as long as the model has layers."""
    config = {"torch_dtype": "bfloat16"} | _document()[name]
    kinds = config.get("layer_types")
    if isinstance(kinds, dict):
        pattern, layers = kinds["repeat"], config["num_hidden_layers"]
        config["layer_types"] = [pattern[number % len(pattern)] for number in range(layers)]
    if "text_config" in config:
        config["text_config"] = {"torch_dtype": "bfloat16"} | config["text_config"]
    return config


@cache
def _document() -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = yaml.safe_load(PATH.read_text("utf-8"))
    return document
