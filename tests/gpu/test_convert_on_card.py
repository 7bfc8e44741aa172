"""An FP8 checkpoint on a real card: against ModelOpt calibrated there, and through the card's own FP8 product.

``benchmarks/gpu/convert_8b.py`` is the same for a model of 8B parameters, with times and rates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.fake_worker import by_modelopt
from tests.checkpoint.plans import plan_for
from trtllm_kit.checkpoint.calibrate import FILE as CALIBRATION
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_tokenizer
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.stream import windows
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.checkpoint.text import read as read_text
from trtllm_kit.progress import Silent

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch, transformers and modelopt")
pytest.importorskip("transformers", reason="needs torch, transformers and modelopt")
pytest.importorskip("modelopt", reason="needs torch, transformers and modelopt")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

from benchmarks.gpu import fp8_on_card, modelopt_division, modelopt_fp8, random_llama  # noqa: E402  # they import torch

SAMPLES, TOKENS = 8, 64
DEVICE = "cuda"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Make a random model on the card and convert it with the kit and with ModelOpt; give the three folders."""
    root = tmp_path_factory.mktemp("card")
    source, ours, theirs = root / "source", root / "ours", root / "theirs"
    random_llama.make(source, random_llama.TINY, DEVICE)
    convert(source, plan_for(source, "fp8", "fp8", samples=SAMPLES, tokens_per_sample=TOKENS), ours, Silent())
    pieces = read_text(None).samples(load_tokenizer(source), SAMPLES, TOKENS)
    model = modelopt_fp8.quantised(fp8_on_card.load_plain(source, DEVICE).model, [piece.tolist() for piece in pieces])
    (root / "amax.json").write_text(json.dumps(dict(modelopt_fp8.largest(model))))
    modelopt_fp8.export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=theirs)
    return source, ours, theirs


def test_what_is_not_quantised_is_the_same_in_both(folders: tuple[Path, Path, Path]) -> None:
    """Names, types and shapes are equal, and so is every byte of a tensor that stays in 16 bit."""
    _, ours, theirs = (open_weights(folder) for folder in folders)
    assert facts(theirs) == facts(ours)
    plain = [name for name, tensor in ours.tensors.items() if tensor.dtype == "BF16"]
    assert [] == [name for name in plain if not np.array_equal(theirs.read(name), ours.read(name))]


def test_codes_are_those_of_an_exact_division_on_the_card(folders: tuple[Path, Path, Path]) -> None:
    """The kit's bytes are what the card gives for ``e4m3(bf16(weight / scale))`` with ``scale = amax / 448``."""
    told = modelopt_division.counted(folders[0], folders[1], DEVICE)
    assert told["weights"] == told["scales_divided"]
    assert 0 == told["codes_other_than_trtkit"]


def test_modelopt_divides_by_a_16_bit_scale_on_the_card(folders: tuple[Path, Path, Path]) -> None:
    """Where ModelOpt exports on a card, its codes come of a scale that was rounded to BF16, and it writes another."""
    told = modelopt_division.counted(folders[0], folders[2], DEVICE)
    assert 0 == told["codes_not_of_16_bit_scale"]
    assert 0 < told["codes_not_of_float32_scale"]
    assert told["weights"] == told["scales_by_reciprocal"]


def test_magnitudes_agree_with_those_the_card_measured(folders: tuple[Path, Path, Path]) -> None:
    """Inputs, keys and values that ModelOpt measured in BF16 on the card lie within 1 % of the kit's in float32."""
    theirs = json.loads((folders[1].parent / "amax.json").read_text())
    ours = json.loads((folders[1] / CALIBRATION).read_text())["amax"]
    assert theirs.keys() == ours.keys()
    assert [] == [name for name in ours if abs(ours[name] / theirs[name] - 1) > 0.01]


def test_product_of_the_card_is_the_product_of_the_codes(folders: tuple[Path, Path, Path]) -> None:
    """``torch._scaled_mm`` gives codes times codes times both scales, up to the rounding of its BF16 result."""
    layer = fp8_on_card.load_fp8(folders[1], DEVICE).model.model.layers[0].mlp.up_proj
    hidden = torch.randn(16, 256, device=DEVICE, dtype=torch.bfloat16)
    exact = fp8_on_card.codes(hidden, layer.input_scale).double() @ layer.weight.double().t()
    exact *= layer.input_scale.double() * layer.weight_scale.double()
    error = (layer(hidden).double() - exact).norm() / exact.norm()
    assert 2**-8 > float(error)


def test_answers_are_near_those_of_the_plain_model(folders: tuple[Path, Path, Path]) -> None:
    """Through transformers and the card's FP8 product the checkpoint answers much as its source does."""
    source, ours, _ = folders
    plain, converted = fp8_on_card.load_plain(source, DEVICE), fp8_on_card.load_fp8(ours, DEVICE)
    pieces = [torch.tensor(one, device=DEVICE) for one in windows(load_tokenizer(source), held_text().raw, 2, 256)]
    figures = fp8_on_card.compared(plain, converted, pieces)
    assert 0.99 < figures["logit_cosine"]
    assert 0.7 < figures["top1_agreement"]
    assert 0.7 < figures["greedy_top1_on_the_source_answer"]


def test_modelopt_of_convert_runs_on_the_card(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """With ``calibration.backend: modelopt`` the worker finds the card, and its checkpoint is taken and answers."""
    source, ours, _ = folders
    plan = plan_for(source, "fp8", "fp8", samples=SAMPLES, tokens_per_sample=TOKENS)
    made = convert(source, by_modelopt(plan, sys.executable), tmp_path / "out", Silent())
    assert DEVICE == json.loads((tmp_path / "out" / "trtkit-modelopt.json").read_text())["device"]
    assert facts(open_weights(ours)) == facts(open_weights(tmp_path / "out"))
    assert made.report is not None
    assert 0.99 < made.report.logit_cosine


def facts(weights: WeightFolder) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of every tensor."""
    return {name: (tensor.dtype, tensor.shape) for name, tensor in weights.tensors.items()}
