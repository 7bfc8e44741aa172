"""What the configuration of a quantised checkpoint is read as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spec.configs import config
from tests.support.specs import deepseek_v3, llama_8b, maverick
from trtllm_kit.errors import ModelConfigError
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import module_of, tensor_formats
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.hf_stored import kept_patterns
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.model import StoredFormats

BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def stored(section: dict[str, Any] | None, modelopt: dict[str, Any] | None = None) -> StoredFormats:
    """Read a small Llama with these configurations."""
    document = config("llama") if section is None else config("llama", quantization_config=section)
    found = read_model_spec(document, "config.json", modelopt).stored
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("section", "modelopt", "expected"),
    [
        (None, {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, ("modelopt", "NVFP4", "nvfp4", "fp8")),
        (BLOCKS, None, ("fp8", "FP8_BLOCK_SCALES", "fp8_block", "bf16")),
        (BLOCKS, {"quant_algo": "FP8_BLOCK_SCALES", "kv_cache_quant_algo": "FP8"},
         ("fp8", "FP8_BLOCK_SCALES", "fp8_block", "fp8")),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, None, ("modelopt", "FP8_PB_WO", "fp8_block", "bf16")),
        ({"producer": {"name": "modelopt"}, "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, None,
         ("modelopt", "FP8", "fp8", "fp8")),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, None,
         ("modelopt", "FP8", "fp8", "fp8")),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "W8A16"}}, None,
         ("modelopt", "W8A16", "int8_wo", "bf16")),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, None,
         ("modelopt", "MIXED_PRECISION without quantized_layers", None, "bf16")),
        ({"quant_method": "awq", "bits": 4}, None, ("awq", "4 bits", None, "bf16")),
    ],
)  # fmt: skip
def test_method_scheme_and_formats(
    section: dict[str, Any] | None, modelopt: dict[str, Any] | None, expected: tuple[str, str, str | None, str]
) -> None:
    """The file beside ``config.json`` wins; what has no word in a profile has no format here."""
    found = stored(section, modelopt)
    assert expected == (found.method, found.scheme, found.weights, found.kv_cache)


def test_hundreds_of_names_become_the_patterns_that_say_the_same() -> None:
    """Norms, routers and the head are never quantised; a number that all layers share becomes ``*``."""
    model = deepseek_v3(61)
    names = ["lm_head", "model.layers.61*"]
    for number in range(61):
        base = f"model.layers.{number}"
        names += [f"{base}.input_layernorm", f"{base}.mlp.gate", f"{base}.self_attn.kv_b_proj"]
    assert ("model.layers.*.self_attn.kv_b_proj",) == kept_patterns(model, names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.layers.3.mlp.up_proj"], ("model.layers.3.mlp.up_proj",)),
        (["model.layers.3.mlp"], ("model.layers.3.mlp.*",)),
        (["model.layers.3*"], ("model.layers.3.*", "model.layers.30.*", "model.layers.31.*")),
        (["*.self_attn*"], ("*.self_attn*",)),
        ([f"model.layers.{number}" for number in range(32)], ("model.layers.*.*",)),
        (["model.layers.40.mlp.up_proj", "visual", "mtp*"], ()),
    ],
)
def test_a_name_stands_for_what_is_below_it(names: list[str], expected: tuple[str, ...]) -> None:
    """A module excludes its linears; a wildcard matches as the loader's own matching does."""
    assert expected == kept_patterns(llama_8b(), names)


def test_only_some_layers_of_a_kind_keep_their_numbers() -> None:
    """The dense layers of Maverick alone have ``feed_forward.up_proj``, so naming all of them is a pattern."""
    model = maverick()
    dense = [number for number, layer in enumerate(model.layers) if layer.feed_forward.kind == "dense"]
    names = [f"{model.prefix}layers.{number}.feed_forward.up_proj" for number in dense]
    assert (f"{model.prefix}layers.*.feed_forward.up_proj",) == kept_patterns(model, names)
    assert tuple(names[1:]) == kept_patterns(model, names[1:])


MODULES = [module_of(name) for number in range(4) for name in tensor_formats(llama_8b(), number, Formats("fp8"))]


@given(st.lists(st.sampled_from(MODULES), unique=True))
def test_the_patterns_keep_exactly_what_the_names_kept(names: list[str]) -> None:
    """Shortening a list changes no tensor's format, whatever it names."""
    model = llama_8b().model_copy(update={"layers": llama_8b().layers[:4]})
    before, after = (
        [tensor_formats(model, number, Formats("fp8", exclude=patterns, passed_through=True)) for number in range(4)]
        for patterns in (tuple(names), kept_patterns(model, names))
    )
    assert before == after


@pytest.mark.parametrize("key", ["ignore", "exclude_modules", "modules_to_not_convert"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    """In either file, by its key."""
    document = config("llama", quantization_config={"quant_method": "fp8", key: "lm_head"})
    with pytest.raises(ModelConfigError, match="quantization_config"):
        read_model_spec(document, "config.json")

    (tmp_path / "config.json").write_text(json.dumps(config("llama")))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8", key: [1]}}))
    with pytest.raises(ModelConfigError, match=r"hf_quant_config\.json cannot be used") as caught:
        load_model(tmp_path)
    assert key in caught.value.why


@pytest.mark.parametrize("text", ["{}", "[]", '{"quantization": 3}', "{", '{"quantization": {}, "quantization": {}}'])
def test_a_broken_file_of_modelopt_is_refused(tmp_path: Path, text: str) -> None:
    """It names the formats of every weight, so a guess would be read as numbers."""
    (tmp_path / "config.json").write_text(json.dumps(config("llama")))
    (tmp_path / "hf_quant_config.json").write_text(text)
    with pytest.raises(ModelConfigError, match="hf_quant_config"):
        load_model(tmp_path)
