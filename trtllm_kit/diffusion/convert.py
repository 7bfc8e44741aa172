"""Makes an INT8 UNet of a 16- or 32-bit one, and says how like its pictures are."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.worker import (
    MODELOPT,
    Tools,
    find_tools,
    interpreter,
    memory_of,
    require_memory,
    run_worker,
)
from trtllm_kit.diffusion.ssim import ssim
from trtllm_kit.errors import ModelNotFound, QualityGateFailed, UnknownArchitecture, WorkerFailed
from trtllm_kit.plan.plan import digest_of
from trtllm_kit.progress import Progress
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged
from trtllm_kit.strict_json import parse_json

WEIGHTS = "diffusion_pytorch_model.safetensors"
CONFIG = "config.json"
_CLASSES = ("UNet2DConditionModel", "UNet2DModel")
_TOOLS = MODELOPT | {"diffusers": "0.30"}
_EXPORT = "modelopt-export"
_MATRIX = 2
"""Axes of the weights that become INT8, a byte an element; convolutions stay as they are."""


@dataclass(frozen=True)
class Recipe:
    """How a UNet is calibrated and compared."""

    calib_steps: int = 8
    """Denoising steps from the first on that scales are measured in."""
    steps: int = 30
    """Denoising steps of a picture."""
    images: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Terms:
    """What a conversion is held to, and in which environment it runs."""

    least: float = 0.0
    """The least SSIM."""
    lock_seconds: float = LOCK_SECONDS
    """How long it waits for another run on the same output."""
    python: str | None = None
    """Interpreter that has NVIDIA ModelOpt; None for the variable's, or the running one."""


_USUAL = Terms()


@dataclass(frozen=True)
class Converted:
    """A finished UNet."""

    manifest: Manifest
    up_to_date: bool
    ssim: float
    """Of what both UNets come to from the same noise (latents, for a latent model)."""


def convert_unet(source: Path, out: Path, recipe: Recipe, progress: Progress, terms: Terms = _USUAL) -> Converted:
    """Write the INT8 UNet of ``source`` (a UNet's folder, or a pipeline's with one in ``unet``) into ``out``.

    Raises, before the first byte: ``ModelNotFound``, ``UnknownArchitecture``, ``UsageError``, ``MissingTool``,
    ``MissingExtra``, ``LockTimeout``, ``StorageError`` (too little memory); then ``WorkerFailed``, ``StorageError``,
    and ``QualityGateFailed`` below ``terms.least``, which leaves no output.
    """
    require_apart(out, source)
    folder, least = _unet_in(source), terms.least
    require_apart(out, folder)  # a link may lead elsewhere
    tools = find_tools(interpreter(terms.python), _TOOLS)
    identity = {name: _sha256(folder / name) for name in (CONFIG, WEIGHTS)}
    key = digest_of([asdict(recipe), identity, tools.identity])
    with staged(out, "checkpoint", key, terms.lock_seconds) as stage:
        if stage is None:
            manifest = read_manifest(out, "checkpoint")
            return Converted(_held(manifest, least), up_to_date=True, ssim=float(manifest.facts["ssim"]))
        require_room(folder, memory_of(tools))
        likeness = _make(stage, folder, recipe, tools, progress)
        _require(likeness, least)
        facts = {"task": "diffusion", "weights": "int8_sq", "made_with": tools.identity, "ssim": likeness}
        return Converted(stage.publish(identity, facts | {"recipe": asdict(recipe)}), up_to_date=False, ssim=likeness)


def _unet_in(source: Path) -> Path:
    folder = source / "unet" if (source / "unet").is_dir() else source
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelNotFound(
                f"{folder} has no {name}",
                why="the diffusion recipe reads one UNet as diffusers saves it, in one safetensors file",
                hint="save it with diffusers: unet.save_pretrained(folder, max_shard_size='100GB')",
            )
    document = parse_json((folder / CONFIG).read_bytes())
    kind = document.get("_class_name") if isinstance(document, dict) else None
    if kind not in _CLASSES:
        raise UnknownArchitecture(
            f"{folder / CONFIG} describes a {kind}",
            why=f"the recipe is for {' and '.join(_CLASSES)}",
            hint="give a UNet",
        )
    read_header(folder / WEIGHTS)
    return folder


def require_room(folder: Path, memory_bytes: int) -> None:
    """Raise ``StorageError`` when the memory cannot hold a UNet beside the least that its INT8 one takes."""
    stored = read_header(folder / WEIGHTS).tensors.values()
    before = sum(one.nbytes for one in stored)
    after = sum(math.prod(one.shape) if len(one.shape) == _MATRIX else one.nbytes for one in stored)
    require_memory(before, after, memory_bytes, "its own format", "")


def _make(stage: Stage, folder: Path, recipe: Recipe, tools: Tools, progress: Progress) -> float:
    export = stage.path / _EXPORT
    request = asdict(recipe) | {
        "source": str(folder.resolve()),
        "out": str(export.resolve()),
        "device": tools.device,
        "calib_steps": min(recipe.calib_steps, recipe.steps),
    }
    shape = run_worker(tools, "diffusion_worker.py", request, progress).get("shape")
    before, after = _pictures(export / "before.f32", shape), _pictures(export / "after.f32", shape)
    _check_weights(folder, export)
    for name in (CONFIG, WEIGHTS):
        (export / name).rename(stage.path / name)
        stage.record(name)
    for rest in export.iterdir():
        rest.unlink()
    export.rmdir()
    try:
        return ssim(before, after)
    except ValueError as error:
        raise _broken(str(error)) from None


def _pictures(path: Path, shape: object) -> NDArray[np.float32]:
    """Return the raw float32 of a file in the shape the worker told."""
    try:
        values = np.frombuffer(path.read_bytes(), np.float32)
        return values.reshape(TypeAdapter(tuple[int, int, int, int]).validate_python(shape))
    except (OSError, ValueError) as error:
        raise _broken(f"{path.name} cannot be read: {error}") from None


def _check_weights(folder: Path, export: Path) -> None:
    """Look that every weight of the source is there with its shape, and that some left 16 bit."""
    if not (export / WEIGHTS).is_file() or not (export / CONFIG).is_file():
        raise _broken(f"the export has no {WEIGHTS} or no {CONFIG}")
    before, after = read_header(folder / WEIGHTS).tensors, read_header(export / WEIGHTS).tensors
    other = [name for name, stored in before.items() if name not in after or after[name].shape != stored.shape]
    codes = [name for name in after if after[name].dtype == "I8"]
    bare = [name for name in codes if f"{name}_scale" not in after]
    if other or bare or not codes:
        named = ", ".join([*other, *bare][:3]) or "no weight in INT8"
        raise _broken(f"its tensors are not those of the source: {named}")


def _broken(why: str) -> WorkerFailed:
    return WorkerFailed("the UNet that ModelOpt left is not usable", why=why, hint="try nvidia-modelopt 0.47")


def _held(manifest: Manifest, least: float) -> Manifest:
    _require(float(manifest.facts["ssim"]), least)
    return manifest


def _require(likeness: float, least: float) -> None:
    if not likeness >= least:
        raise QualityGateFailed(
            f"the UNet lost too much: SSIM {likeness:.4f} (at least {least:g})",
            why="measured between what both come to from the same noise",
            hint="raise --calib-steps, so that scales cover more of the steps",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
