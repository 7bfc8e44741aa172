"""The diffusion recipe on a small random UNet, with diffusers and NVIDIA ModelOpt themselves."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.ranks import read_file
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.diffusion.convert import WEIGHTS, Recipe, Terms, convert_unet
from trtllm_kit.errors import QualityGateFailed
from trtllm_kit.progress import Silent

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the recipe needs torch, diffusers and modelopt")
diffusers = pytest.importorskip("diffusers", reason="the recipe needs torch, diffusers and modelopt")
pytest.importorskip("modelopt", reason="the recipe needs torch, diffusers and modelopt")


@pytest.fixture
def unet(tmp_path: Path) -> Path:
    """Write a random conditioned UNet in the place a pipeline has it, as diffusers draws it."""
    torch.manual_seed(3)
    blocks = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "layers_per_block": 1, "norm_num_groups": 8}
    model = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(32, 64), cross_attention_dim=32,
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=8, **blocks,
    )  # fmt: skip
    model.save_pretrained(tmp_path / "pipeline" / "unet")
    return tmp_path / "pipeline"


def test_the_int8_unet_draws_the_same_pictures(unet: Path, tmp_path: Path) -> None:
    """Attention and feed-forward are INT8 with scales, SSIM passes 0.98, a rerun does nothing, a gate of 1 refuses it.

    SSIM is that of latents after two denoising steps (0.9998 with torch 2.13): nothing trained draws them together,
    so each further step parts the two more (0.973 after 6, 0.03 after 30), and a trained model's is not measured here.
    """
    recipe = Recipe(calib_steps=2, steps=2)
    held = Terms(0.98, python=sys.executable)
    made = convert_unet(unet, tmp_path / "out", recipe, Silent(), held)
    stored = read_header(tmp_path / "out" / WEIGHTS).tensors
    module = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
    assert ("I8", "F32") == (stored[f"{module}.weight"].dtype, stored[f"{module}.weight_scale"].dtype)
    assert "F32" == stored["conv_in.weight"].dtype
    before, after = read_file(unet / "unet" / WEIGHTS), read_file(tmp_path / "out" / WEIGHTS)
    for name in (name for name, (dtype, _) in after.items() if dtype == "I8"):
        step = after[f"{name}_scale"][1][:, None] * after[f"{name.removesuffix('weight')}pre_quant_scale"][1]
        error = np.abs(after[name][1].view(np.int8) * step - before[name][1])
        assert (error <= 0.501 * step).all(), name
    assert 0.98 <= made.ssim == made.manifest.facts["ssim"]
    assert {"calib_steps": 2, "steps": 2, "images": 2, "seed": 0} == made.manifest.facts["recipe"]
    assert convert_unet(unet, tmp_path / "out", recipe, Silent(), held).up_to_date
    for folder in ("out", "fresh"):  # one that is there, and one that is measured for it
        with pytest.raises(QualityGateFailed, match=r"SSIM 0\.99"):
            convert_unet(unet, tmp_path / folder, recipe, Silent(), replace(held, least=1.0))
    assert (True, False) == ((tmp_path / "out").exists(), (tmp_path / "fresh").exists())
