"""Writes the weight files of a checkpoint one after the other, and notes in the journal what is safe on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from trtllm_kit.checkpoint.calibrate import Calibrated
from trtllm_kit.checkpoint.identity import require_same_files
from trtllm_kit.checkpoint.job import Job
from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.checkpoint.produce import Producer
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.writer import earlier_part, steps_behind, write_safetensors
from trtllm_kit.errors import StorageError
from trtllm_kit.progress import Progress
from trtllm_kit.staging import Stage
from trtllm_kit.units import MIB, format_bytes

MARK_BYTES = 256 * MIB
"""What is written at least between two places that a later run could go on from."""
_ROOM_FOR_SMALL_FILES = 64 * MIB


def require_room(stage: Stage, steps: Sequence[TensorStep]) -> None:
    """Raise ``StorageError`` when the disk has no room for what is still to be written."""
    needed = bytes_left(stage, steps) + _ROOM_FOR_SMALL_FILES
    free = shutil.disk_usage(stage.path).free
    if free < needed:
        raise StorageError(
            f"no room for the checkpoint in {stage.out.parent}",
            why=f"{format_bytes(needed)} needed, {format_bytes(free)} free",
            hint="free space there, or choose an --out on another file system",
        )


def bytes_left(stage: Stage, steps: Sequence[TensorStep]) -> int:
    """Return the bytes of data that no earlier run made sure of."""
    left = 0
    for file, inside in groupby(steps, key=lambda step: step.file):
        if not stage.has(file):
            prefix, whole = stage.prefix(file), list(inside)
            todo = steps_behind(whole, prefix.bytes) if prefix else None
            left += sum(step.nbytes for step in (whole if todo is None else todo))
    return left


def write_shards(stage: Stage, job: Job, calibrated: Calibrated | None, progress: Progress) -> None:
    """Write every weight file of a conversion that is not finished; raises what ``write_files`` raises."""
    measured = calibrated.amax if calibrated else {}
    write_files(stage, Shards(job.weights, job.steps, half_format(job.plan.model), measured), progress)


@dataclass(frozen=True)
class Shards:
    """What weight files are made of."""

    weights: WeightFolder
    steps: Sequence[TensorStep]
    half: str
    """The 16-bit format of float32 tensors that are encoded."""
    amax: Mapping[str, float] = field(default_factory=dict)
    """What was measured for each calibrated scale."""


def write_files(stage: Stage, shards: Shards, progress: Progress) -> None:
    """Write every weight file that is not finished, going on behind what an earlier run made sure of.

    Raises ``TensorError`` for NaN or Inf by name, ``StorageError``, and ``WeightFileError`` when the source changes.
    """
    progress.start("writing weights", bytes_left(stage, shards.steps), "bytes")
    with Producer(shards.weights, shards.half, shards.amax, progress) as producer:
        for file, steps in groupby(shards.steps, key=lambda step: step.file):
            if not stage.has(file):
                _write_shard(stage, shards.weights, list(steps), producer)
    progress.finish()


def _write_shard(stage: Stage, weights: WeightFolder, steps: Sequence[TensorStep], producer: Producer) -> None:
    file = steps[0].file

    def mark(size: int, sha256: str) -> None:
        require_same_files(weights)  # before it is recorded: a later run goes on from what is
        stage.record_prefix(file, size, sha256)

    earlier = earlier_part(stage.path / file, steps, stage.prefix(file))
    pieces = producer.pieces(steps_behind(steps, earlier.bytes) or ())
    sha256 = write_safetensors(stage.path / file, steps, pieces, earlier, mark, MARK_BYTES)
    require_same_files(weights)
    stage.record(file, sha256)
