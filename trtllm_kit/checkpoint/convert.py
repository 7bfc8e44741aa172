"""Makes the checkpoint a plan asks for: checks everything, calibrates, streams the tensors, says what was lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.checkpoint import calibrate as calibration
from trtllm_kit.checkpoint.calibrate import Calibrated
from trtllm_kit.checkpoint.config_files import CONFIG, config_text, read_small_files
from trtllm_kit.checkpoint.evaluate import Comparison, compare_pieces, report_of
from trtllm_kit.checkpoint.facts import checkpoint_facts
from trtllm_kit.checkpoint.gate import require_quality
from trtllm_kit.checkpoint.header import INDEX
from trtllm_kit.checkpoint.identity import require_same_files, require_unchanged
from trtllm_kit.checkpoint.job import Job, is_calibrated, locate, prepare
from trtllm_kit.checkpoint.layout import SHARD_BYTES
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.modelopt import make_weights
from trtllm_kit.checkpoint.names import LAYER_QUANT_CONFIG, QUANT_CONFIG
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, conversion_text
from trtllm_kit.checkpoint.quant_config import hf_quant_config, layer_quant_config
from trtllm_kit.checkpoint.rank_order import configuration
from trtllm_kit.checkpoint.reader import SINGLE
from trtllm_kit.checkpoint.shards import require_room, write_shards
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.progress import Progress
from trtllm_kit.spec.quality import Quality
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged

__all__ = ["Conversion", "TensorStep", "Terms", "conversion_steps", "convert"]


@dataclass(frozen=True)
class Terms:
    """What a conversion is held to; none of it changes a byte."""

    quality: Quality | None = None
    """What it may lose; None for the floors."""
    lock_seconds: float = LOCK_SECONDS
    """How long it waits for another run on the same output."""


_USUAL = Terms()


@dataclass(frozen=True)
class Conversion:
    """A finished checkpoint."""

    manifest: Manifest
    up_to_date: bool
    """It was there already, made by the same plan from the same source."""
    resumed: bool = False
    """It went on with the files of a run that had been interrupted."""
    report: Comparison | None = None
    """What it lost, where that was asked or is measured anyway; without layers when it is up to date."""


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
    terms: Terms = _USUAL,
) -> Conversion:
    """Write the checkpoint of ``plan`` into ``out``; a rerun goes on near the tensor it was cut in, or does nothing.

    Raises, before the first byte: ``UsageError`` (one folder in the other), ``FormatNotMade``, ``ModelConfigError``,
    ``WeightFileError``, ``WeightIndexError``, ``TensorError`` (all problems of the weights at once), ``PlanDrift``,
    ``MissingExtra``, ``CalibrationError``, ``StorageError`` (no room), ``OutputOccupied``, ``LockTimeout``; and while
    it works ``TensorError`` for NaN or Inf by name, ``StorageError``, ``WeightFileError`` when the source changes
    under its hands, and ``QualityGateFailed``. After an error no output is left.

    With ``terms.quality`` every format is compared with its source, and held to these limits; a checkpoint that is
    up to date is held to them as well, and stays. Without it formats that are calibrated are held to the floors.
    """
    require_apart(out, source)
    quality = terms.quality
    job = prepare(source, plan, shard_bytes, proof=quality is not None)
    with staged(out, "checkpoint", job.key, terms.lock_seconds) as stage:
        if stage is None:
            return _up_to_date(out, job, progress, quality)
        resumed = stage.resumed
        require_room(stage, job.steps)
        job, calibrated = _weights(stage, job, progress)
        _write_small_files(stage, job)
        report = _quality(stage.path, job, progress, quality)
        facts = checkpoint_facts(job, calibrated)
        if report is not None and is_calibrated(plan):  # the manifest depends on its key, not on what was asked of it
            facts["quality"] = report.facts()
        require_unchanged(job.weights, job.identity)
        inputs = {"conversion": job.record.digest, "model": job.identity.digest}
        return Conversion(stage.publish(inputs, facts), up_to_date=False, resumed=resumed, report=report)


def _weights(stage: Stage, job: Job, progress: Progress) -> tuple[Job, Calibrated | None]:
    """Make the weight files; returns the job with the tensors that are there, and what was measured."""
    if job.tools is not None:
        return make_weights(stage, job, progress)
    calibrated = _calibrated(stage, job, progress)
    write_shards(stage, job, calibrated, progress)
    return job, calibrated


def _up_to_date(out: Path, job: Job, progress: Progress, quality: Quality | None) -> Conversion:
    """Return what is there already, held to the limits that are asked now."""
    manifest = read_manifest(out, "checkpoint")
    if quality is None:
        return Conversion(manifest, up_to_date=True)
    known = manifest.facts.get("quality")
    report = report_of(known) if known is not None else _quality(out, job, progress, quality)
    if report is not None:
        require_quality(report, quality)
    return Conversion(manifest, up_to_date=True, report=report)


def _calibrated(stage: Stage, job: Job, progress: Progress) -> Calibrated | None:
    """Measure the scales, or take what an interrupted run measured, so that its shards and ours agree."""
    scales = list(dict.fromkeys(name for step in job.steps for name in step.measured))
    if job.texts is None or job.texts.calibration is None or not scales:
        return None
    if stage.has(calibration.FILE):
        return Calibrated.model_validate_json((stage.path / calibration.FILE).read_text("utf-8"))
    calibrated = calibration.calibrate(job.opened(), job.texts.calibration, scales, progress)
    require_same_files(job.weights)
    stage.write_text(calibration.FILE, calibrated.model_dump_json(indent=1) + "\n")
    return calibrated


def _write_small_files(stage: Stage, job: Job) -> None:
    in_ranks = job.plan.layout.value == LAYOUT
    described = (CONFIG, LAYER_QUANT_CONFIG, *((QUANT_CONFIG,) if in_ranks else ()))
    for name, data in job.small.items():
        if name not in described or (job.plan.quantization.formats.passed_through and not in_ranks):
            (stage.path / name).write_bytes(data)
            stage.record(name)
    texts = configuration(job.plan) if in_ranks else _unified_configuration(job)
    for name, text in texts.items():
        stage.write_text(name, text)
    stage.write_text(CONVERSION_FILE, conversion_text(job.record))


def _unified_configuration(job: Job) -> dict[str, str]:
    """Return the text of each configuration file of the unified layout by its name, but for those that are copied."""
    model, formats = job.plan.model, job.plan.quantization
    texts: dict[str, str] = {}
    if not formats.formats.passed_through:
        texts[CONFIG] = config_text(job.small[CONFIG], model, formats)
        described = {
            QUANT_CONFIG: hf_quant_config(model, formats),
            LAYER_QUANT_CONFIG: layer_quant_config(model, formats),
        }
        texts |= {name: _json(document) for name, document in described.items() if document is not None}
    files = {step.name: step.file for step in job.steps}
    if set(files.values()) != {SINGLE}:
        size = sum(step.nbytes for step in job.steps)
        texts[INDEX] = _json({"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))})
    return texts


def _quality(made: Path, job: Job, progress: Progress, quality: Quality | None) -> Comparison | None:
    """Compare the finished checkpoint with its source over the held text; None where that is neither due nor asked."""
    if job.texts is None:
        return None
    report = compare_pieces(job.opened(), open_checkpoint(made), job.texts.held, progress)
    require_quality(report, quality)
    return report


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
