"""The diffusion recipe on a small random UNet, with diffusers and NVIDIA ModelOpt themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.ranks import read_file
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.diffusion.convert import WEIGHTS, Recipe, convert_unet
from trtllm_kit.errors import QualityGateFailed
from trtllm_kit.progress import Silent

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the recipe needs torch, diffusers and modelopt")
diffusers = pytest.importorskip("diffusers", reason="the recipe needs torch, diffusers and modelopt")
pytest.importorskip("modelopt", reason="the recipe needs torch, diffusers and modelopt")


@pytest.fixture
def unet(tmp_path: Path) -> Path:
    """Write a random conditioned UNet in the place a pipeline has it.

    Its last layer is a tenth of what it is drawn as: without training, larger noise would be amplified from step to
    step until two runs that differ in a rounding have nothing in common.
    """
    torch.manual_seed(3)
    blocks = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "layers_per_block": 1, "norm_num_groups": 8}
    model = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(32, 64), cross_attention_dim=32,
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=8, **blocks,
    )  # fmt: skip
    model.conv_out.weight.data *= 0.1
    model.save_pretrained(tmp_path / "pipeline" / "unet")
    return tmp_path / "pipeline"


def test_the_int8_unet_draws_the_same_pictures(unet: Path, tmp_path: Path) -> None:
    """Attention and feed-forward are INT8 with scales, SSIM passes 0.98, a rerun does nothing, 1.1 is refused."""
    recipe = Recipe(calib_steps=2, steps=6)
    made = convert_unet(unet, tmp_path / "out", recipe, Silent(), python=sys.executable, least=0.98)
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
    assert {"calib_steps": 2, "steps": 6, "images": 2, "seed": 0} == made.manifest.facts["recipe"]
    assert convert_unet(unet, tmp_path / "out", recipe, Silent(), python=sys.executable).up_to_date
    with pytest.raises(QualityGateFailed, match="SSIM"):
        convert_unet(unet, tmp_path / "out", recipe, Silent(), python=sys.executable, least=1.1)
