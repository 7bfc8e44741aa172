"""Measures what static scales must cover: the largest input of every linear, key and value over a text.

Projections that share their input share its amax: q, k and v, gate and up, and the experts of a layer, which all
see what the router sees. An expert's ``down_proj`` has its own, or the layer's largest when no token reached it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.stream import Window, run_layers
from trtllm_kit.checkpoint.text import Text
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError
from trtllm_kit.progress import Progress

FILE = "trtkit-calibration.json"
_INPUT, _FUSED_INPUT, _KEY, _VALUE = ".input_scale", "_input_scale", ".k_scale", ".v_scale"


@dataclass(frozen=True)
class Samples:
    """What is run: a text, and the pieces that were taken of it."""

    text: Text
    pieces: list[Window]
    tokens_per_sample: int
    seed: int


class Calibrated(BaseModel):
    """What was measured, kept in the checkpoint as ``trtkit-calibration.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text_sha256: str
    samples: int
    """Pieces that were run."""
    tokens_per_sample: int
    """The most of one piece."""
    seed: int
    """What chose the samples; 0 for the first ones of the text."""
    tokens: int
    """Of all pieces."""
    experts_without_tokens: int
    """Experts whose ``down_proj`` saw no token and took the largest of its layer."""
    amax: dict[str, float]
    """Largest magnitude for each scale tensor of the checkpoint, by the tensor's name."""


def calibrate(opened: OpenCheckpoint, samples: Samples, scales: Iterable[str], progress: Progress) -> Calibrated:
    """Run the samples and return the amax of each tensor named in ``scales``.

    Raises ``CalibrationError`` when an activation is not finite.
    """
    largest: dict[str, float] = {}

    def observe(name: str, values: F32) -> None:
        seen = float(np.abs(values).max(initial=0.0))
        largest[name] = max(largest.get(name, 0.0), seen)
        if not np.isfinite(seen):  # asked of the new value: max() would drop a NaN
            raise CalibrationError(
                f"calibration met a value that is not finite in {name}",
                why="the weights overflow float32 on this text, so no scale can be measured",
                hint="try trtkit convert with quantization.weights: bf16, and check the model's answers first",
            )

    with np.errstate(over="ignore", invalid="ignore"):  # observe tells what is not finite, by name
        run_layers(opened, samples.pieces, progress, "calibrating", observe)
    amax, idle = _by_scale(scales, largest)
    return Calibrated(
        text_sha256=samples.text.sha256,
        samples=len(samples.pieces),
        tokens_per_sample=samples.tokens_per_sample,
        seed=samples.seed,
        tokens=sum(len(piece) for piece in samples.pieces),
        experts_without_tokens=idle,
        amax=amax,
    )


def _by_scale(scales: Iterable[str], largest: dict[str, float]) -> tuple[dict[str, float], int]:
    amax: dict[str, float] = {}
    idle = 0
    for name in scales:
        attention = name.rpartition(".")[0].rpartition(".")[0]
        if name.endswith(_KEY):
            amax[name] = largest[f"{attention}.k_cache"]
        elif name.endswith(_VALUE):
            amax[name] = largest[f"{attention}.v_cache"]
        elif name.endswith(_FUSED_INPUT):
            fused = f"{name.removesuffix(_FUSED_INPUT)}."
            amax[name] = max(seen for expert, seen in largest.items() if expert.startswith(fused))
        else:
            amax[name], reached = _input_amax(name.removesuffix(_INPUT), largest)
            idle += not reached
    return amax, idle


_EXPERT_DOWN = ("down_proj", "w2")


def _input_amax(module: str, largest: dict[str, float]) -> tuple[float, bool]:
    """Return the amax of a module's input, and whether a token reached the module."""
    block, expert, rest = module.partition(".experts.")
    if not expert:
        return largest[module], True
    projection = rest.rpartition(".")[2]
    if projection not in _EXPERT_DOWN:
        return largest[f"{block}.gate"], True
    if module in largest:
        return largest[module], True
    siblings = f"{block}.experts."
    of_layer = [seen for name, seen in largest.items() if name.startswith(siblings) and name.endswith(projection)]
    return max(of_layer), False
