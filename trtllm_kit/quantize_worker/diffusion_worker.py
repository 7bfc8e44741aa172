"""SmoothQuant INT8 of a UNet with NVIDIA ModelOpt and diffusers; runs in their environment, not in trtkit's.

The UNet is calibrated on the first denoising steps alone, in which the picture takes its form and inputs are largest.
Noise and conditioning are drawn from the request's seed. Both UNets then denoise the same noise to the end, and what
they come to lies beside the export as ``before.f32`` and ``after.f32``,
raw float32 of the shape that the result names, (images, channels, height, width).
"""

import copy
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KEPT = ("time_emb_proj", "time_embedding", "add_embedding")
"""Small layers in front of every block, whose error would be everywhere."""
_CONVOLUTIONS = ("nn.Conv1d", "nn.Conv2d", "nn.Conv3d", "nn.ConvTranspose2d")
"""ModelOpt 0.47 exports these in 16 or 32 bit, whatever it measured."""
_WORDS = 77
"""Length of the conditioning, that of CLIP's text encoder."""


def main() -> None:
    """Do what the request on standard input says."""
    request = json.load(sys.stdin)
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        own.write(json.dumps(line) + "\n")
        own.flush()

    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    tell({"phase": "loading diffusers and NVIDIA ModelOpt", "total": 1})
    unet = _load(request)
    tell({"done": 1})
    tell({"result": _convert(unet, request, tell)})


def _load(request: dict[str, Any]) -> Any:
    import diffusers

    kind = json.loads((Path(request["source"]) / "config.json").read_text("utf-8"))["_class_name"]
    known = {"UNet2DConditionModel": diffusers.UNet2DConditionModel, "UNet2DModel": diffusers.UNet2DModel}
    unet = known[kind].from_pretrained(request["source"], local_files_only=True, use_safetensors=True)
    return unet.to(request["device"]).eval()


def _convert(unet: Any, request: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    steps, first, out = request["steps"], request["calib_steps"], Path(request["out"])
    before = _denoise(unet, request, request["seed"] + 1, steps, tell, "pictures of the source")

    def run(model: Any) -> None:
        _denoise(model, request, request["seed"], first, tell, "calibrating with NVIDIA ModelOpt")

    quantised = mtq.quantize(unet, _config(mtq), run)
    after = _denoise(quantised, request, request["seed"] + 1, steps, tell, "pictures of the quantised UNet")
    tell({"phase": "exporting from ModelOpt", "total": 1})
    export_hf_checkpoint(quantised, dtype=next(quantised.parameters()).dtype, export_dir=out)
    (out / "before.f32").write_bytes(before.tobytes())
    (out / "after.f32").write_bytes(after.tobytes())
    tell({"done": 1})
    return {"device": str(next(quantised.parameters()).device.type), "shape": list(before.shape)}


def _config(mtq: Any) -> dict[str, Any]:
    config: dict[str, Any] = copy.deepcopy(mtq.INT8_SMOOTHQUANT_CFG)
    config["quant_cfg"] += [{"quantizer_name": f"*{name}*", "enable": False} for name in _KEPT]
    config["quant_cfg"] += [{"quantizer_name": "*", "parent_class": kind, "enable": False} for kind in _CONVOLUTIONS]
    return config


def _denoise(
    unet: Any, request: dict[str, Any], seed: int, count: int, tell: Callable[[dict[str, Any]], None], label: str
) -> Any:
    """Run the first ``count`` of the steps from noise of a seed; returns what is there then as float32."""
    import diffusers
    import torch

    scheduler = diffusers.DDIMScheduler()
    scheduler.set_timesteps(request["steps"])
    random = torch.Generator().manual_seed(seed)
    size, channels = unet.config.sample_size, unet.config.in_channels
    height, width = (size, size) if isinstance(size, int) else size
    sample = torch.randn(request["images"], channels, height, width, generator=random)
    more = {}
    if getattr(unet.config, "cross_attention_dim", None):
        states = torch.randn(request["images"], _WORDS, unet.config.cross_attention_dim, generator=random)
        more["encoder_hidden_states"] = states.to(unet.device, unet.dtype)
    sample = sample.to(unet.device, unet.dtype)
    tell({"phase": label, "total": count})
    with torch.no_grad():
        for step in scheduler.timesteps[:count]:
            sample = scheduler.step(unet(sample, step, **more).sample, step, sample).prev_sample
            tell({"done": 1})
    return sample.float().cpu().numpy()


if __name__ == "__main__":
    main()
