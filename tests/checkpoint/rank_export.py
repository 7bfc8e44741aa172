"""What ModelOpt's exporter into ranks leaves, made by hand: INT8 SmoothQuant whose inputs are multiplied by 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.quantised import Stored, of_bf16, read_safetensors, write_stored

FACTOR = 2.0
_INPUT_SCALE = 0.1


def write_smoothed(ranks: Path, out: Path) -> None:
    """Turn the 16-bit rank files of a folder into those of ``int8_sq``; scales of a KV cache stay as they are."""
    out.mkdir(parents=True)
    for path in sorted(ranks.glob("rank*.safetensors")):
        tensors: dict[str, Stored] = {}
        for name, stored in read_safetensors(path).items():
            tensors |= _smoothed(name, stored) if _is_linear(name) else {name: stored}
        write_stored(out / path.name, tensors)


def _is_linear(name: str) -> bool:
    return name.endswith(".weight") and (".attention." in name or ".mlp." in name)


def _smoothed(name: str, stored: Stored) -> dict[str, Stored]:
    module, values = name.removesuffix(".weight"), of_bf16(stored) / np.float32(FACTOR)
    scale = np.abs(values).max(axis=1) / np.float32(127)
    codes = np.rint(values / scale[:, None]).astype(np.int8)
    bits = np.full(values.shape[1], FACTOR, np.float32).view(np.uint32) >> 16
    return {
        name: Stored("I8", codes.shape, codes.tobytes()),
        f"{module}.weights_scaling_factor": Stored("F32", scale.shape, scale.tobytes()),
        f"{module}.prequant_scaling_factor": Stored("BF16", bits.shape, bits.astype(np.uint16).tobytes()),
        f"{module}.activation_scaling_factor": Stored("F32", (1,), np.float32(_INPUT_SCALE).tobytes()),
    }
