"""Checkpoints of every native format, from a model's folder to the answers of the reference runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.evaluate import compare
from trtllm_kit.checkpoint.load import load_reference, open_checkpoint
from trtllm_kit.checkpoint.packed import packed
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.errors import FormatNotMade, TensorError
from trtllm_kit.progress import Silent
from trtllm_kit.spec.profile_formats import KvFormat, PartFormat

WIDER = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64, "num_hidden_layers": 1}
"""Widths that every format takes, and one layer: random weights of two lose near as much as the gate allows."""
NATIVE: tuple[PartFormat, ...] = ("fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "mxfp8", "nvfp4")
LOST: dict[PartFormat, float] = {
    "fp8_rowwise": 0.04, "fp8_block": 0.04, "int8_wo": 0.02, "int4_wo": 0.2, "mxfp8": 0.04, "nvfp4": 0.2,
}  # fmt: skip
"""Root mean square of what a random normal weight loses, over that of the weight, at most."""
UP = "model.layers.0.mlp.up_proj"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama."""
    return write_tiny_model(tmp_path_factory.mktemp("source"), seed=6, **WIDER)


@pytest.fixture(scope="module", params=NATIVE)
def converted(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PartFormat, Path]:
    """The model in one format."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    convert(source, plan_for(source, request.param), out, Silent())
    return request.param, out


def test_every_linear_is_stored_in_the_format(converted: tuple[PartFormat, Path]) -> None:
    """All seven of a layer, told from the tensors alone; embedding, head and norms stay in 16 bit."""
    name, out = converted
    weights = StoredWeights(open_weights(out))
    linears = [f"self_attn.{short}_proj" for short in "qkvo"] + [
        f"mlp.{short}_proj" for short in ("gate", "up", "down")
    ]
    assert {name} == {weights.number_format(f"model.layers.0.{linear}.weight") for linear in linears}
    assert {"plain"} == {weights.number_format(end) for end in ("model.embed_tokens.weight", "lm_head.weight")}
    assert (name,) == weights.formats


def test_weights_come_back_within_the_step_of_the_format(converted: tuple[PartFormat, Path], source: Path) -> None:
    """Dequantised weights differ from their source by the rounding and by nothing else (a transposition, a scale)."""
    name, out = converted
    before = StoredWeights(open_weights(source)).tensor(f"{UP}.weight")
    after = StoredWeights(open_weights(out)).tensor(f"{UP}.weight")
    assert before.shape == after.shape
    assert 0 < np.sqrt(np.mean((after - before) ** 2) / np.mean(before**2)) < LOST[name]


def test_the_reference_runs_the_checkpoint(converted: tuple[PartFormat, Path], source: Path) -> None:
    """Its answers are those of the source but for what the format loses."""
    _, out = converted
    found = compare(source, out, held_text(), Silent(), 128)
    assert 0.9 < found.logit_cosine < 1.0


def test_inputs_are_rounded_where_the_kernels_round_them(converted: tuple[PartFormat, Path]) -> None:
    """Weight-only formats multiply the input as it is; NVFP4 has a static scale and the others dynamic ones."""
    name, out = converted
    linear = load_reference(out)._layers[0].attention.query
    values = np.random.default_rng(0).standard_normal((3, linear.weight.shape[1])).astype(np.float32)
    exact = np.allclose(linear(values), values @ linear.weight.T, rtol=1e-6, atol=1e-6)
    assert exact == (name in ("int8_wo", "int4_wo"))
    assert (linear.input_scale is not None) == (name == "nvfp4")


def test_bytes_do_not_depend_on_the_run(converted: tuple[PartFormat, Path], source: Path, tmp_path: Path) -> None:
    """A second conversion writes the same weights."""
    name, out = converted
    convert(source, plan_for(source, name), tmp_path / "again", Silent())
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()


def test_nvfp4_shares_scales_among_what_the_runtime_fuses(source: Path, tmp_path: Path) -> None:
    """One weight_scale_2 and one input_scale for q, k and v, and for gate and up; down has its own."""
    convert(source, plan_for(source, "nvfp4"), tmp_path / "out", Silent())
    weights = StoredWeights(open_weights(tmp_path / "out"))
    base = "model.layers.0."
    for part in ("weight_scale_2", "input_scale"):
        assert 1 == len({weights.scale(f"{base}self_attn.{short}_proj.{part}") for short in "qkv"})
        gate, up, down = (weights.scale(f"{base}mlp.{short}_proj.{part}") for short in ("gate", "up", "down"))
        assert gate == up
        assert up != down


@pytest.mark.parametrize("kv_cache", ["fp8", "nvfp4"])
def test_nvfp4_weights_take_a_quantised_kv_cache(source: Path, tmp_path: Path, kv_cache: KvFormat) -> None:
    """Scales of keys and values are amax / 448 for both, and the reference's cache rounds to the format."""
    convert(source, plan_for(source, "nvfp4", kv_cache), tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out")
    calibrated = json.loads((tmp_path / "out" / "trtkit-calibration.json").read_text())["amax"]
    name = "model.layers.0.self_attn.k_proj.k_scale"
    assert pytest.approx(calibrated[name] / 448, rel=1e-6) == opened.weights.scale(name)
    assert kv_cache == opened.kv_format
    scales = load_reference(tmp_path / "out")._layers[0].kv_scales
    assert scales is not None
    assert kv_cache == scales.number_format


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_int4_has_the_factor_that_the_loader_of_its_word_asks_for(dtype: str, tmp_path: Path) -> None:
    """W4A16_AWQ multiplies each input by pre_quant_scale: here ones of the model's 16 bit, one an input feature."""
    source = write_tiny_model(tmp_path / "source", dtype=dtype, **WIDER)
    convert(source, plan_for(source, "int4_wo"), tmp_path / "out", Silent())
    weights = open_weights(tmp_path / "out")
    scaled = [name for name in weights.tensors if name.endswith(".weight_scale")]
    assert 7 == len(scaled)
    for name in scaled:
        factor = weights.tensors[name.replace("weight_scale", "pre_quant_scale")]
        columns = weights.tensors[name.removesuffix("_scale")].shape[1]
        assert ({"bfloat16": "BF16", "float16": "F16"}[dtype], (columns,)) == (factor.dtype, factor.shape)
        ones = StoredWeights(weights).input_factor(name.removesuffix(".weight_scale"))
        assert ones is not None
        assert [1.0] * columns == ones.tolist()


def test_int4_takes_groups_of_64(source: Path, tmp_path: Path) -> None:
    """As many scales as groups."""
    convert(source, plan_for(source, "int4_wo", group_size=64), tmp_path / "out", Silent())
    weights = open_weights(tmp_path / "out")
    assert (384, 4) == weights.tensors[f"{UP}.weight_scale"].shape
    assert "int4_wo" == StoredWeights(weights).number_format(f"{UP}.weight")


@pytest.mark.parametrize("family", ["llama4", "gpt_oss"])
def test_fused_experts_of_nvfp4_come_back_as_they_were(family: str, tmp_path: Path) -> None:
    """Their blocks run down the input features, and the values lie where the source has them."""
    source = write_tiny_model(tmp_path / "source", family, seed=2)
    convert(source, plan_for(source, "nvfp4"), tmp_path / "out", Silent())
    before, after = (StoredWeights(open_weights(folder)) for folder in (source, tmp_path / "out"))
    fused = [name for name in before.folder.tensors if name.endswith("experts.down_proj")]
    assert fused
    for name in fused:
        lost = after.tensor(name) - before.tensor(name)
        assert np.sqrt(np.mean(lost**2) / np.mean(before.tensor(name) ** 2)) < LOST["nvfp4"]
        assert "nvfp4" == after.number_format(name)


@pytest.mark.parametrize("broken", [0.0, np.nan, -1.0])
def test_a_scale_without_meaning_is_refused_by_name(source: Path, tmp_path: Path, broken: float) -> None:
    """One bad scale of 384 makes a row of noise."""
    convert(source, plan_for(source, "int8_wo"), tmp_path / "out", Silent())
    tensor = open_weights(tmp_path / "out").tensors[f"{UP}.weight_scale"]
    data = bytearray(tensor.file.read_bytes())
    data[tensor.begin + 40 : tensor.begin + 44] = np.float32(broken).tobytes()
    tensor.file.write_bytes(data)
    with pytest.raises(TensorError, match=r"up_proj\.weight_scale"):
        load_reference(tmp_path / "out")


def test_a_weight_without_its_scales_is_no_format(source: Path, tmp_path: Path) -> None:
    """Codes mean nothing without them, nor with those of another shape."""
    convert(source, plan_for(source, "mxfp8"), tmp_path / "out", Silent())
    tensors = dict(open_weights(tmp_path / "out").tensors)
    name = f"{UP}.weight"
    found = packed(tensors, name)
    assert found is not None
    assert ("mxfp8", (384, 256)) == found[:2]
    tensors[f"{UP}.weight_scale"] = tensors["model.layers.0.mlp.down_proj.weight_scale"]
    assert packed(tensors, name) is None
    del tensors[f"{UP}.weight_scale"]
    assert packed(tensors, name) is None


@pytest.mark.parametrize(
    ("weights", "widths", "what"),
    [
        ("nvfp4", {"intermediate_size": 40}, r"down_proj\.weight does not fit nvfp4"),
        ("mxfp8", {"intermediate_size": 48}, r"48 input features are no multiple of 32"),
        ("int4_wo", {"hidden_size": 192}, r"192 input features are no multiple of 128"),
        ("int4_wo", {"hidden_size": 128, "intermediate_size": 129}, r"129 output features are no multiple of 2"),
    ],
)
def test_widths_that_a_format_does_not_take_are_refused_before_the_first_byte(
    weights: PartFormat, widths: dict[str, int], what: str, tmp_path: Path
) -> None:
    """With the tensor and both numbers, all tensors at once."""
    source = write_tiny_model(tmp_path / "source", **widths)
    with pytest.raises(TensorError, match=what):
        convert(source, plan_for(source, weights), tmp_path / "out", Silent())
    assert ["source"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("weights", ["fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "mxfp8"])
def test_fused_experts_are_refused_in_formats_nobody_reads(weights: PartFormat, tmp_path: Path) -> None:
    """Llama 4's experts lie in one tensor, for which these formats have no layout."""
    source = write_tiny_model(tmp_path / "source", "llama4", hidden_size=128, intermediate_size_mlp=128)
    with pytest.raises(FormatNotMade, match="experts in one tensor"):
        convert(source, plan_for(source, weights), tmp_path / "out", Silent())


def test_a_configuration_that_names_another_format_is_refused(source: Path, tmp_path: Path) -> None:
    """A runtime would read noise, or fail after minutes."""
    convert(source, plan_for(source, "int8_wo"), tmp_path / "out", Silent())
    path = tmp_path / "out" / "hf_quant_config.json"
    document = json.loads(path.read_text())
    document["quantization"]["quant_algo"] = "NVFP4"
    path.write_text(json.dumps(document))
    with pytest.raises(TensorError, match="NVFP4") as caught:
        open_checkpoint(tmp_path / "out")
    assert "int8_wo" in caught.value.why
