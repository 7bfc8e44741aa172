"""config.json and hf_quant_config.json of the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit import __version__
from trtllm_kit.checkpoint.config_files import config_text, read_small_files
from trtllm_kit.checkpoint.quant_config import hf_quant_config
from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.profile_formats import KvFormat

FLOAT8 = {"dynamic": False, "num_bits": 8, "type": "float"}


def config_of(source: Path, weights: str = "bf16", kv_cache: str = "bf16") -> dict[str, Any]:
    """Return the output's config.json."""
    plan = plan_for(source, weights, kv_cache)
    document: dict[str, Any] = json.loads(
        config_text((source / "config.json").read_bytes(), plan.model, plan.quantization)
    )
    return document


def test_a_16_bit_checkpoint_keeps_its_config(tmp_path: Path) -> None:
    """Not a key is changed, rope fields and unknown ones included."""
    source = write_tiny_model(
        tmp_path, rope_scaling={"rope_type": "linear", "factor": 2.0}, transformers_version="4.44"
    )
    assert json.loads((source / "config.json").read_text()) == config_of(source)


def test_an_fp8_checkpoint_says_so_in_modelopt_s_words(tmp_path: Path) -> None:
    """The keys are ModelOpt's; the producer is the kit."""
    source = write_tiny_model(tmp_path)
    producer = {"name": "trtllm-kit", "version": __version__}
    assert {
        "config_groups": {"group_0": {"input_activations": FLOAT8, "weights": FLOAT8, "targets": ["Linear"]}},
        "ignore": ["lm_head", "model.embed_tokens"],
        "quant_algo": "FP8",
        "kv_cache_scheme": FLOAT8,
        "producer": producer,
        "quant_method": "modelopt",
    } == config_of(source, "fp8", "fp8")["quantization_config"]
    plan = plan_for(source, "fp8", "fp8")
    assert {
        "producer": producer,
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head", "model.embed_tokens"],
        },
    } == hf_quant_config(plan.model, plan.quantization)


def test_a_16_bit_cache_leaves_the_kv_scheme_out(tmp_path: Path) -> None:
    """Null in the one file, no key in the other, as ModelOpt writes it."""
    source = write_tiny_model(tmp_path)
    plan = plan_for(source, "fp8", "bf16")
    document = hf_quant_config(plan.model, plan.quantization)
    assert document is not None
    assert document["quantization"]["kv_cache_quant_algo"] is None
    assert "kv_cache_scheme" not in config_of(source, "fp8", "bf16")["quantization_config"]


@pytest.mark.parametrize("kv_cache", ["bf16", "fp8"])
def test_plain_weights_have_no_quantisation_file(tmp_path: Path, kv_cache: KvFormat) -> None:
    """TensorRT-LLM refuses one without quant_algo."""
    source = write_tiny_model(tmp_path)
    plan = plan_for(source, "bf16", kv_cache)
    assert hf_quant_config(plan.model, plan.quantization) is None


def test_a_float32_model_becomes_bfloat16_in_config_too(tmp_path: Path) -> None:
    """Under whichever name the source spells it, in the text part as well."""
    assert "bfloat16" == config_of(write_tiny_model(tmp_path / "a", dtype="float32"))["torch_dtype"]
    llama4 = config_of(write_tiny_model(tmp_path / "b", "llama4", dtype="float32"))
    assert ["bfloat16", "bfloat16"] == [llama4["torch_dtype"], llama4["text_config"]["torch_dtype"]]


def test_vision_parts_of_llama4_are_named_as_unquantised(tmp_path: Path) -> None:
    """The runtime would look for their scales otherwise."""
    source = write_tiny_model(tmp_path, "llama4")
    plan = plan_for(source, "fp8", "fp8")
    document = hf_quant_config(plan.model, plan.quantization)
    assert document is not None
    assert {"vision_model*", "multi_modal_projector*", "language_model.lm_head"} <= set(
        document["quantization"]["exclude_modules"]
    )


def test_only_known_small_files_are_copied(tmp_path: Path) -> None:
    """Tokenizer and generation files go with the weights, notes and scripts do not."""
    source = write_tiny_model(tmp_path)
    (source / "README.md").write_text("x")
    (source / "modeling_x.py").write_text("x")
    found = read_small_files(source)
    assert ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] == list(found)
    assert (source / "tokenizer.json").read_bytes() == found["tokenizer.json"]


def test_no_small_file_is_skipped_because_it_is_none(tmp_path: Path) -> None:
    """A link that leads nowhere (a cache that was cleaned) would give a checkpoint without its generation settings."""
    source = write_tiny_model(tmp_path)
    (source / "generation_config.json").unlink()
    (source / "generation_config.json").symlink_to("../../blobs/4d7a")
    with pytest.raises(ModelConfigError, match=r"generation_config\.json cannot be read") as caught:
        read_small_files(source)
    assert "it is a symbolic link to ../../blobs/4d7a, which is not there" == caught.value.why
