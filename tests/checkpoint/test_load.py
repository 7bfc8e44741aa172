"""Loading folders into the reference forward pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.errors import MissingExtra, ModelNotFound, TensorError
from trtllm_kit.progress import Silent


@pytest.fixture(scope="module")
def fp8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted FP8 checkpoint."""
    root = tmp_path_factory.mktemp("fp8")
    source = write_tiny_model(root / "source")
    convert(source, plan_for(source, "fp8", "fp8"), root / "out", Silent())
    return root / "out"


def test_a_plain_folder_has_a_16_bit_cache(tmp_path: Path) -> None:
    """Nothing says FP8."""
    assert "bf16" == load_reference(write_tiny_model(tmp_path)).kv_format


def test_an_fp8_checkpoint_runs_with_its_scales(fp8: Path) -> None:
    """The cache is FP8, linears have static input scales, and the ends have none."""
    model = load_reference(fp8)
    assert "fp8" == model.kv_format
    layer = model._layers[0]
    assert layer.attention.query.input_scale == layer.attention.key.input_scale is not None
    assert layer.kv_scales is not None


def test_fp8_weights_are_multiplied_by_their_scale(fp8: Path) -> None:
    """The largest weight is the amax: 448 times the scale."""
    weights = StoredWeights(open_weights(fp8))
    name = "model.layers.0.mlp.up_proj.weight"
    assert np.abs(weights.tensor(name)).max() == pytest.approx(448 * weights.scale(f"{name}_scale"), rel=1e-6)
    assert weights.scale("nothing.input_scale") is None


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_without_meaning_is_refused(fp8: Path, tmp_path: Path, value: float) -> None:
    """It would turn every answer into NaN or zero."""
    weights = open_weights(fp8)
    name = "model.layers.0.mlp.up_proj.input_scale"
    tensor = weights.tensors[name]
    data = bytearray(tensor.file.read_bytes())
    data[tensor.begin : tensor.begin + 4] = np.float32(value).tobytes()
    for path in fp8.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(TensorError, match=r"up_proj\.input_scale"):
        load_reference(tmp_path)


def test_another_quantisation_is_refused_by_name(fp8: Path, tmp_path: Path) -> None:
    """The forward pass reads plain weights and per-tensor FP8."""
    for path in fp8.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((tmp_path / "hf_quant_config.json").read_text())
    document["quantization"]["quant_algo"] = "NVFP4"
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(document))
    with pytest.raises(TensorError, match="NVFP4"):
        open_checkpoint(tmp_path)


def test_the_tokenizer_reads_what_it_wrote(tmp_path: Path) -> None:
    """Text survives a round trip, other scripts included."""
    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    assert "the tin man, 你好" == tokenizer.decode(tokenizer.encode("the tin man, 你好").ids)


def test_a_missing_or_broken_tokenizer_is_told(tmp_path: Path) -> None:
    """Without the file, and with a file that is none."""
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="cannot be read"):
        load_tokenizer(tmp_path)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command installs it; a BF16 conversion never asks for it."""
    source = write_tiny_model(tmp_path / "source")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match="rehearsal"):
        convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent())
    convert(source, plan_for(source), tmp_path / "out", Silent())
