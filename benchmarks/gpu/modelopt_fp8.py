"""FP8 with an FP8 KV cache by nvidia-modelopt: ``python -m benchmarks.gpu.modelopt_fp8 MODEL IDS AMAX [EXPORT]``.

``IDS`` is a JSON file with the token ids of each calibration sample. ``AMAX`` receives the largest magnitude behind
each scale, by the name of the tensor that trtkit keeps it in. With ``EXPORT`` the model runs in BF16 and is exported
there; without it runs in float32, as trtkit's own calibration does, so that the two can be held against each other
without the roundings of 16-bit activations.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForCausalLM

from benchmarks.gpu.watched import Watch


def quantised(model: Any, pieces: list[list[int]]) -> Any:
    """Calibrate a model on pieces of token ids."""

    def run(model: Any) -> None:
        for piece in pieces:
            model(torch.tensor(piece, device=model.device)[None], use_cache=False)

    recipe = mtq.update_quant_cfg_with_kv_cache_quant(copy.deepcopy(mtq.FP8_DEFAULT_CFG), mtq.FP8_KV_CFG["quant_cfg"])
    with torch.no_grad():
        return mtq.quantize(model, recipe, run)


def largest(model: Any) -> Iterator[tuple[str, float]]:
    """Yield the name of each static scale and the magnitude that it covers."""
    for name, module in model.named_modules():
        for quantizer, tensor in (
            ("input_quantizer", "input_scale"),
            ("k_bmm_quantizer", "k_proj.k_scale"),
            ("v_bmm_quantizer", "v_proj.v_scale"),
        ):
            amax = getattr(getattr(module, quantizer, None), "amax", None)
            if amax is not None:
                yield f"{name}.{tensor}", float(amax)


def main(source: str, ids: str, amax: str, export: str | None = None) -> int:
    """Calibrate, export, and print what it took."""
    dtype = torch.float32 if export is None else torch.bfloat16
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with Watch() as watch:
        watch.start("loading", 1, "models")
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype).eval().to(device)
        watch.start("calibrating", 1, "models")
        model = quantised(model, json.loads(Path(ids).read_text()))
        Path(amax).write_text(json.dumps(dict(largest(model)), indent=1))
        if export is not None:
            watch.start("exporting", 1, "models")
            export_hf_checkpoint(model, dtype=dtype, export_dir=export)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else None
    print(json.dumps(watch.told() | {"gpu_bytes": memory}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
