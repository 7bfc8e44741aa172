"""Every native format against NVIDIA ModelOpt's own export of the same model: names, dtypes, shapes and bytes.

ModelOpt exports no FP8 blocks as DeepSeek published them; its own 128 x 128 export has the bytes under another name.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.checkpoint.plans import plan_as_stored, plan_for
from tests.checkpoint.test_modelopt_oracle import llama4_text_model
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.text import read as read_text
from trtllm_kit.progress import Silent
from trtllm_kit.spec.profile_formats import PartFormat

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch, transformers and modelopt")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="the oracle needs torch, transformers and modelopt")


class Case(NamedTuple):
    """One format of one family, and what ModelOpt calls the recipe."""

    family: str
    weights: PartFormat
    recipe: str


RECIPES: dict[PartFormat, str] = {
    "fp8_rowwise": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "fp8_block": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "int8_wo": "INT8_WEIGHT_ONLY_CFG",
    "int4_wo": "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "mxfp8": "MXFP8_DEFAULT_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
}
CASES = [
    *(Case(family, weights, recipe) for family in ("llama", "qwen2") for weights, recipe in RECIPES.items()),
    *(Case("qwen3_moe", weights, RECIPES[weights]) for weights in RECIPES if weights not in ("int4_wo", "fp8_block")),
    *(Case(family, "nvfp4", RECIPES["nvfp4"]) for family in ("phi3", "llama4", "gpt_oss", "mixtral", "gemma3")),
    Case("gemma2", "fp8_rowwise", RECIPES["fp8_rowwise"]),
]  # ModelOpt fails on experts in INT4 and in FP8 blocks
WIDER = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64, "seed": 7}
CALIBRATED = ("input_scale",)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.family}-{case.weights}")
def exports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[WeightFolder, WeightFolder]:
    """Convert one random model with the kit and with ModelOpt; give the weights of both."""
    case: Case = request.param
    root = tmp_path_factory.mktemp(f"{case.family}-{case.weights}")
    if case.family == "llama4":
        source = llama4_text_model(root / "source")
    else:
        source = write_tiny_model(root / "source", case.family, **({"seed": 2} if case.family == "gpt_oss" else WIDER))
    plan = plan_for(source, case.weights, samples=8, tokens_per_sample=64)
    convert(source, plan, root / "ours", Silent())
    pieces = read_text(None).samples(load_tokenizer(source), 8, 64)
    modelopt_export(source, case.recipe, pieces, root / "theirs")
    return open_weights(root / "ours"), open_weights(root / "theirs")


def modelopt_export(source: Path, recipe: str, pieces: list[Any], out: Path) -> None:
    """Quantise and export with ModelOpt."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()

    def run(model: Any) -> None:
        for piece in pieces:
            model(torch.tensor(piece)[None])

    export_hf_checkpoint(
        mtq.quantize(model, copy.deepcopy(getattr(mtq, recipe)), run), dtype=torch.bfloat16, export_dir=out
    )


def as_ours(name: str, ours: WeightFolder) -> str:
    """Return the kit's name of a tensor of ModelOpt: its FP8 blocks have DeepSeek's."""
    return name if name in ours.tensors else name.replace("weight_scale", "weight_scale_inv")


def int4_weights(theirs: WeightFolder) -> set[str]:
    """Return the weights of a folder that ModelOpt calls W4A16_AWQ; none of any other."""
    document = json.loads((theirs.folder / "hf_quant_config.json").read_text())
    is_int4 = document["quantization"]["quant_algo"] == "W4A16_AWQ"
    return {name for name, tensor in theirs.tensors.items() if is_int4 and tensor.dtype == "U8"}


def test_names_types_and_shapes_are_those_of_modelopt(exports: tuple[WeightFolder, WeightFolder]) -> None:
    """Both folders hold the same tensors; ModelOpt's scales of blocks have axes of length one beside.

    INT4 without AWQ has one more in the kit's: the factor of 1 that TensorRT-LLM's loader of W4A16_AWQ wants.
    """
    ours, theirs = exports
    expected = {as_ours(name, ours): (tensor.dtype, squeezed(tensor.shape)) for name, tensor in theirs.tensors.items()}
    found = {name: (tensor.dtype, squeezed(tensor.shape)) for name, tensor in ours.tensors.items()}
    added = {name for name in found.keys() - expected.keys() if name.endswith(".pre_quant_scale")}
    assert expected == {name: entry for name, entry in found.items() if name not in added}
    assert {name.replace("pre_quant_scale", "weight") for name in added} == int4_weights(theirs)


def test_bytes_are_those_of_modelopt(exports: tuple[WeightFolder, WeightFolder]) -> None:
    """Every weight and every scale that does not depend on calibration is the same, byte for byte."""
    ours, theirs = exports
    fixed = [name for name in theirs.tensors if not name.endswith(CALIBRATED)]
    different = [
        name for name in fixed if not np.array_equal(theirs.read(name).ravel(), ours.read(as_ours(name, ours)).ravel())
    ]
    assert [] == different


def test_modelopts_own_export_is_passed_through_as_it_is(
    exports: tuple[WeightFolder, WeightFolder], tmp_path: Path
) -> None:
    """Every tensor of ModelOpt's folder is handed on."""
    _, theirs = exports
    convert(theirs.folder, plan_as_stored(theirs.folder), tmp_path / "out", Silent())
    after = open_weights(tmp_path / "out")
    assert theirs.tensors.keys() == after.tensors.keys()
    assert [] == [name for name in theirs.tensors if not np.array_equal(theirs.read(name), after.read(name))]
    opened = open_checkpoint(tmp_path / "out")
    for name in (name for name in theirs.tensors if name.endswith("up_proj.weight")):
        assert np.isfinite(opened.weights.tensor(name)).all()


def test_input_scales_agree_with_modelopt(exports: tuple[WeightFolder, WeightFolder]) -> None:
    """Scales measured in float32 lie within the error of ModelOpt's bfloat16 activations; looser behind a router."""
    ours, theirs = exports
    routed = any("experts" in name or "router" in name for name in theirs.tensors)
    for name in (name for name in theirs.tensors if name.endswith(CALIBRATED)):
        low, high = (0.97, 1.03) if not routed or ".layers.0.self_attn." in name else (0.4, 1.25)
        assert low < float(ours.read(name).ravel()[0]) / float(theirs.read(name).ravel()[0]) < high, name


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without axes of length one."""
    return tuple(size for size in shape if size != 1)
