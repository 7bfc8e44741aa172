"""Makes the checkpoint a plan asks for: checks everything, calibrates, streams the tensors, says what was lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.checkpoint import calibrate as calibration
from trtllm_kit.checkpoint.calibrate import Calibrated
from trtllm_kit.checkpoint.config_files import CONFIG, config_text, hf_quant_config, read_small_files
from trtllm_kit.checkpoint.evaluate import compare_pieces
from trtllm_kit.checkpoint.facts import checkpoint_facts
from trtllm_kit.checkpoint.gate import require_quality
from trtllm_kit.checkpoint.identity import require_same_files, require_unchanged
from trtllm_kit.checkpoint.job import Job, locate, prepare
from trtllm_kit.checkpoint.layout import SHARD_BYTES, TensorStep
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.names import QUANT_CONFIG
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, conversion_text
from trtllm_kit.checkpoint.produce import Producer
from trtllm_kit.checkpoint.reader import INDEX, SINGLE
from trtllm_kit.checkpoint.writer import write_safetensors
from trtllm_kit.errors import StorageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Progress
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged
from trtllm_kit.units import MIB, format_bytes

__all__ = ["Conversion", "TensorStep", "conversion_steps", "convert"]

_ROOM_FOR_SMALL_FILES = 64 * MIB


@dataclass(frozen=True)
class Conversion:
    """A finished checkpoint."""

    manifest: Manifest
    up_to_date: bool
    """It was there already, made by the same plan from the same source."""
    resumed: bool = False
    """It went on with the files of a run that had been interrupted."""


def conversion_steps(source: Path, plan: Plan) -> tuple[TensorStep, ...]:
    """Return every tensor ``convert`` would write, in order; raises what its checks raise, and writes nothing."""
    _, _, steps = locate(source, read_small_files(source), plan, SHARD_BYTES)
    return steps


def convert(
    source: Path,
    plan: Plan,
    out: Path,
    progress: Progress,
    *,
    shard_bytes: int = SHARD_BYTES,
    lock_seconds: float = LOCK_SECONDS,
) -> Conversion:
    """Write the checkpoint of ``plan`` into ``out``; a rerun goes on at the shard it was cut in, or does nothing.

    Raises, before the first byte: ``UsageError`` (one folder in the other), ``FormatNotMade``, ``ModelConfigError``,
    ``WeightFileError``, ``WeightIndexError``, ``TensorError`` (all problems of the weights at once), ``PlanDrift``,
    ``MissingExtra``, ``CalibrationError``, ``StorageError`` (no room), ``OutputOccupied``, ``LockTimeout``; and while
    it works ``TensorError`` for NaN or Inf by name, ``StorageError``, ``WeightFileError`` when the source changes
    under its hands, and ``QualityGateFailed``. After an error no output is left.
    """
    require_apart(out, source)
    job = prepare(source, plan, shard_bytes)
    with staged(out, "checkpoint", job.key, lock_seconds) as stage:
        if stage is None:
            return Conversion(read_manifest(out, "checkpoint"), up_to_date=True)
        resumed = stage.resumed
        _require_room(stage, job.steps)
        calibrated = _calibrated(stage, job, progress)
        _write_shards(stage, job, calibrated, progress)
        _write_small_files(stage, job)
        facts = checkpoint_facts(job, calibrated) | _quality(stage, job, progress)
        require_unchanged(job.weights, job.identity)
        inputs = {"conversion": job.record.digest, "model": job.identity.digest}
        return Conversion(stage.publish(inputs, facts), up_to_date=False, resumed=resumed)


def _require_room(stage: Stage, steps: Sequence[TensorStep]) -> None:
    needed = sum(step.nbytes for step in steps if not stage.has(step.file)) + _ROOM_FOR_SMALL_FILES
    free = shutil.disk_usage(stage.path).free
    if free < needed:
        raise StorageError(
            f"no room for the checkpoint in {stage.out.parent}",
            why=f"{format_bytes(needed)} needed, {format_bytes(free)} free",
            hint="free space there, or choose an --out on another file system",
        )


def _calibrated(stage: Stage, job: Job, progress: Progress) -> Calibrated | None:
    """Measure the scales, or take what an interrupted run measured, so that its shards and ours agree."""
    scales = [step.name for step in job.steps if step.action in ("input_scale", "kv_scale")]
    if job.texts is None or not scales:
        return None
    if stage.has(calibration.FILE):
        return Calibrated.model_validate_json((stage.path / calibration.FILE).read_text("utf-8"))
    calibrated = calibration.calibrate(job.opened(), job.texts.calibration, scales, job.texts.text, progress)
    require_same_files(job.weights)
    stage.write_text(calibration.FILE, calibrated.model_dump_json(indent=1) + "\n")
    return calibrated


def _write_shards(stage: Stage, job: Job, calibrated: Calibrated | None, progress: Progress) -> None:
    producer = Producer(job.weights, job.plan.model, calibrated.amax if calibrated else {}, progress)
    todo = [step for step in job.steps if not stage.has(step.file)]
    progress.start("writing weights", sum(step.nbytes for step in todo), "bytes")
    for file, steps in groupby(todo, key=lambda step: step.file):
        sha256 = write_safetensors(stage.path / file, list(steps), producer.tiles)
        require_same_files(job.weights)  # before it is recorded: a later run goes on from what is
        stage.record(file, sha256)
    progress.finish()


def _write_small_files(stage: Stage, job: Job) -> None:
    model, formats = job.plan.model, job.plan.quantization
    for name, data in job.small.items():
        if name != CONFIG:
            (stage.path / name).write_bytes(data)
            stage.record(name)
    stage.write_text(CONFIG, config_text(job.small[CONFIG], model, formats))
    quantised = hf_quant_config(model, formats)
    if quantised is not None:
        stage.write_text(QUANT_CONFIG, _json(quantised))
    files = {step.name: step.file for step in job.steps}
    if set(files.values()) != {SINGLE}:
        size = sum(step.nbytes for step in job.steps)
        stage.write_text(INDEX, _json({"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))}))
    stage.write_text(CONVERSION_FILE, conversion_text(job.record))


def _quality(stage: Stage, job: Job, progress: Progress) -> dict[str, Any]:
    """Compare the finished checkpoint with its source over the held text; nothing for 16-bit formats."""
    if job.texts is None:
        return {}
    report = compare_pieces(job.opened(), open_checkpoint(stage.path), job.texts.held, progress)
    require_quality(report)
    return {"quality": asdict(report)}


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
