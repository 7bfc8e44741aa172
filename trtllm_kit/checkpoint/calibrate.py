"""Measures what static scales must cover: the largest input of every linear, key and value over a text.

Projections that share their input share its amax: q, k and v, gate and up, and the experts of a layer, which all
see what the router sees. An expert's ``down_proj`` has its own, or the layer's largest when no token reached it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from trtllm_kit.checkpoint.load import OpenCheckpoint
from trtllm_kit.checkpoint.stream import Window, run_layers
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import CalibrationError, storage_error
from trtllm_kit.files import UnfitFile
from trtllm_kit.files import read_text as read_text_file
from trtllm_kit.progress import Progress
from trtllm_kit.resources import package_file

FILE = "trtkit-calibration.json"
_INPUT, _FUSED_INPUT, _KEY, _VALUE = ".input_scale", "_input_scale", ".k_scale", ".v_scale"


class Calibrated(BaseModel):
    """What was measured, kept in the checkpoint as ``trtkit-calibration.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text_sha256: str
    samples: int
    tokens: int
    experts_without_tokens: int
    """Experts whose ``down_proj`` saw no token and took the largest of its layer."""
    amax: dict[str, float]
    """Largest magnitude for each scale tensor of the checkpoint, by the tensor's name."""


def calibrate(
    opened: OpenCheckpoint, pieces: Sequence[Window], scales: Iterable[str], text: str, progress: Progress
) -> Calibrated:
    """Run ``pieces`` of ``text`` and return the amax of each tensor named in ``scales``.

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
        run_layers(opened, pieces, progress, "calibrating", observe)
    amax, idle = _by_scale(scales, largest)
    return Calibrated(
        text_sha256=sha256_of(text),
        samples=len(pieces),
        tokens=sum(len(piece) for piece in pieces),
        experts_without_tokens=idle,
        amax=amax,
    )


def sha256_of(text: str) -> str:
    """Hash a calibration text, as the plan and the checkpoint's manifest name it."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_text(path: str | None) -> str:
    """Return the calibration text: the operator's own file, or the bundled one."""
    place = Path(path) if path is not None else package_file("checkpoint", "calibration.txt")
    try:
        return read_text_file(place)
    except UnfitFile as error:
        raise CalibrationError(
            f"{place} cannot be read", why=error.unfit, hint="give calibration.text a text file"
        ) from None
    except OSError as error:
        raise storage_error(error, "reading the calibration text") from None
    except UnicodeDecodeError as error:
        raise CalibrationError(
            f"{place} is not UTF-8 text", why=str(error), hint="give calibration.text a UTF-8 file"
        ) from None


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
