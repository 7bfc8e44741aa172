"""Weights against the model that config.json describes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.test_reader import edit_index
from tests.support.tiny_model import FAMILIES, write_safetensors, write_tiny_model
from trtllm_kit.checkpoint.check import Extras, check_source
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import TensorError, WeightIndexError
from trtllm_kit.spec.load import load_model


def check(folder: Path) -> Extras:
    """Open and check a folder."""
    return check_source(open_weights(folder), load_model(folder))


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    """Read all tensors as float32."""
    weights = open_weights(folder)
    return {name: to_float32(weights.read(name), tensor.dtype) for name, tensor in weights.tensors.items()}


def rewrite(folder: Path, drop: str | None = None, **add: np.ndarray) -> Path:
    """Write a folder's weights again without one tensor and with others."""
    tensors = {name: values for name, values in tensors_of(folder).items() if name != drop}
    write_safetensors(folder / "model.safetensors", tensors | add)
    return folder


def edit_config(folder: Path, **changes: object) -> Path:
    """Change keys of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weights_of_every_family_are_as_its_config_says(family: str, tmp_path: Path) -> None:
    """The tiny models name their tensors without the product's list, and both agree."""
    assert Extras((), {}) == check(write_tiny_model(tmp_path, family))


def test_all_missing_tensors_and_shapes_are_told_at_once(tmp_path: Path) -> None:
    """A config for three layers of other width lists what does not fit, in three lines."""
    folder = edit_config(write_tiny_model(tmp_path), num_hidden_layers=3, intermediate_size=96)
    with pytest.raises(TensorError, match="15 problems") as caught:
        check(folder)
    assert "model.layers.0.mlp.gate_proj.weight has shape [128, 64]" in caught.value.why
    assert "and 9 more" in caught.value.why
    assert 3 == len(caught.value.lines())


def test_a_missing_head_of_an_untied_model_is_an_error(tmp_path: Path) -> None:
    """Tying it without a word is how a converter writes nonsense."""
    folder = rewrite(write_tiny_model(tmp_path), drop="lm_head.weight")
    with pytest.raises(TensorError, match=r"lm_head\.weight is missing") as caught:
        check(folder)
    assert "tie_word_embeddings is false" in caught.value.why


def test_a_tied_model_that_stores_an_equal_head_leaves_it_out(tmp_path: Path) -> None:
    """The copy is dropped with its reason."""
    folder = write_tiny_model(tmp_path, tie_word_embeddings=True)
    rewrite(folder, **{"lm_head.weight": tensors_of(folder)["model.embed_tokens.weight"]})
    assert {"lm_head.weight": "tied to the embedding, and equal to it"} == check(folder).left_out


def test_a_tied_model_that_stores_another_head_is_refused(tmp_path: Path) -> None:
    """One of the two would be lost."""
    folder = write_tiny_model(tmp_path, tie_word_embeddings=True)
    rewrite(folder, **{"lm_head.weight": np.ones((272, 64), np.float32)})
    with pytest.raises(TensorError, match="differs from the embedding"):
        check(folder)


def test_weights_that_config_does_not_describe_are_refused(tmp_path: Path) -> None:
    """A bias that attention_bias false hides belongs to the model all the same."""
    folder = rewrite(write_tiny_model(tmp_path), **{"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)})
    with pytest.raises(TensorError, match=r"1 tensors are not described.*q_proj\.bias"):
        check(folder)


def test_saved_constants_are_left_out(tmp_path: Path) -> None:
    """Old checkpoints store the rotary frequencies."""
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    folder = rewrite(write_tiny_model(tmp_path), **{name: np.ones(8, np.float32)})
    assert {name: "a constant the runtime computes"} == check(folder).left_out


def test_a_required_tensor_without_an_index_entry_is_an_index_error(tmp_path: Path) -> None:
    """It lies in the shard, and no loader would find it."""
    folder = write_tiny_model(tmp_path, shards=2)
    edit_index(folder, **{"model.norm.weight": None})
    with pytest.raises(WeightIndexError, match=r"model\.norm\.weight is not in model\.safetensors\.index\.json"):
        check(folder)


def test_another_dtype_than_config_s_is_refused(tmp_path: Path) -> None:
    """Float16 weights of a bfloat16 config would be cast by the loader."""
    folder = edit_config(write_tiny_model(tmp_path, dtype="float16"), torch_dtype="bfloat16")
    with pytest.raises(TensorError, match="stored as F16"):
        check(folder)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_plain_dtypes_are_taken(tmp_path: Path, dtype: str) -> None:
    """Float16 and float32 models are converted too."""
    check(write_tiny_model(tmp_path, dtype=dtype))


def test_a_quantised_input_is_refused_by_name(tmp_path: Path) -> None:
    """The first line names the method, the last says what to convert instead."""
    folder = edit_config(write_tiny_model(tmp_path), quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(TensorError, match=r"quantised already.*gptq") as caught:
        check(folder)
    assert "BF16" in caught.value.hint


def test_a_quantised_input_whose_config_is_silent_is_known_by_its_tensors(tmp_path: Path) -> None:
    """A weight_scale is enough."""
    name = "model.layers.0.mlp.up_proj.weight_scale"
    folder = rewrite(write_tiny_model(tmp_path), **{name: np.ones(1, np.float32)})
    with pytest.raises(TensorError, match="quantised already") as caught:
        check(folder)
    assert name in caught.value.why


@pytest.mark.parametrize("name", ["vision_tower.vision_model.post_layernorm.bias", "multi_modal_projector.x"])
def test_the_vision_part_of_gemma3_is_copied(tmp_path: Path, name: str) -> None:
    """What lies beside the text model passes through; of Gemma 2, which has none, it is refused."""
    extra = {name: np.ones(4, np.float32)}
    assert (name,) == check(rewrite(write_tiny_model(tmp_path / "3", "gemma3"), **extra)).copied
    with pytest.raises(TensorError, match="not described"):
        check(rewrite(write_tiny_model(tmp_path / "2", "gemma2"), **extra))


def test_llama4_s_vision_tower_is_copied(tmp_path: Path) -> None:
    """What the kit does not run still belongs to the checkpoint."""
    folder = rewrite(write_tiny_model(tmp_path, "llama4"), **{"vision_model.class_embedding": np.ones(4, np.float32)})
    assert ("vision_model.class_embedding",) == check(folder).copied
