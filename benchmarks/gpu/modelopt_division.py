"""How ModelOpt's FP8 export rounds where it ran: ``python -m benchmarks.gpu.modelopt_division MODEL EXPORT``.

On a CPU its bytes are those of ``bf16(weight / float32 scale)`` and ``scale = amax / 448``. On a card PyTorch divides
a tensor by a Python number as a product with the reciprocal, and rounds a scale that lies on the card to the 16-bit
format of the weight before it divides by it. This counts which of these rules gives the bytes of an export.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

E4M3 = torch.float8_e4m3fn
_LARGEST = np.float32(448)
_SCALE = ".weight_scale"


def counted(source: Path, export: Path, device: str) -> dict[str, Any]:
    """Return over all quantised weights of an export how many scales and codes follow each rule."""
    weights = dict(_tensors(source, device, lambda name: name.endswith("_proj.weight")))
    scales = dict(_tensors(export, device, lambda name: name.endswith(_SCALE)))
    told: dict[str, Any] = dict.fromkeys(
        ("weights", "scales_divided", "scales_by_reciprocal", "codes", "codes_other_than_trtkit",
         "codes_not_of_float32_scale", "codes_not_of_16_bit_scale", "most_codes_apart"), 0,
    )  # fmt: skip
    errors = []
    for name, found in _tensors(export, device, lambda name: f"{name}_scale" in scales):
        weight, scale = weights.pop(name).float(), scales[f"{name}_scale"].float()
        amax = np.float32(weight.abs().max().item())
        divided = amax / _LARGEST
        told["weights"] += 1
        told["scales_divided"] += int(scale.item() == divided)
        told["scales_by_reciprocal"] += int(scale.item() == amax * (np.float32(1) / _LARGEST))
        kit = codes(weight, torch.tensor(divided, device=device))
        told["codes"] += found.numel()
        told["codes_other_than_trtkit"] += _differing(found, kit)
        told["codes_not_of_float32_scale"] += _differing(found, codes(weight, scale))
        told["codes_not_of_16_bit_scale"] += _differing(found, codes(weight, scale.bfloat16().float()))
        apart = int((found.view(torch.uint8).short() - kit.view(torch.uint8).short()).abs().max())
        told["most_codes_apart"] = max(told["most_codes_apart"], apart)
        errors.append((_error(weight, kit, float(divided)), _error(weight, found, float(scale))))
    ours, theirs = (float(np.median(one)) for one in zip(*errors, strict=True))
    return told | {"median_error_trtkit": ours, "median_error_modelopt": theirs}


def codes(weight: Tensor, scale: Tensor) -> Tensor:
    """Return the quotient of two float32, rounded to BF16 and then to e4m3."""
    return (weight / scale).bfloat16().to(E4M3)


def _differing(a: Tensor, b: Tensor) -> int:
    return int((a.view(torch.uint8) != b.view(torch.uint8)).sum())


def _error(weight: Tensor, found: Tensor, scale: float) -> float:
    """Return the root mean square error of codes over that of the weight."""
    return float((found.float() * scale - weight).norm() / weight.norm())


def _tensors(folder: Path, device: str, wanted: Any) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt", device=device) as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys() if wanted(name))  # noqa: SIM118


def main(source: str, export: str) -> int:
    """Print the counts."""
    print(json.dumps(counted(Path(source), Path(export), "cuda" if torch.cuda.is_available() else "cpu")))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
