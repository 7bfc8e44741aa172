"""What the manifest of a checkpoint says: formats, sizes, how scales were measured, and what a reader should know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtllm_kit.checkpoint.calibrate import Calibrated
from trtllm_kit.checkpoint.job import Job
from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.quantization import idle_patterns


def checkpoint_facts(job: Job, calibrated: Calibrated | None) -> dict[str, Any]:
    """Return the facts, JSON values only; ``findings`` are what the conversion noticed."""
    formats = job.plan.quantization
    facts: dict[str, Any] = {
        "architecture": job.plan.model.architecture,
        "weights": formats.weights.value,
        "kv_cache": formats.kv_cache.value,
        "tensors": len(job.steps),
        "quantised_tensors": sum(step.format != PLAIN and step.part == WEIGHT for step in job.steps),
        "weight_bytes": sum(step.nbytes for step in job.steps),
        "weight_files": len({step.file for step in job.steps}),
        "left_out": job.extras.left_out,
        "findings": [finding.model_dump(mode="json") for finding in _findings(job, calibrated)],
    }
    if job.tools is not None:
        facts["made_with"] = job.tools.identity
    if calibrated is not None:
        facts["calibration"] = calibrated.model_dump(exclude={"amax"})
    return facts


def _findings(job: Job, calibrated: Calibrated | None) -> Iterator[Finding]:
    stored = job.weights.tensors
    changed = {name for step in job.steps if step.source and step.dtype != "F32" for name in step.source.tensors}
    rounded = {name for name in changed if stored[name].dtype == "F32"}
    if rounded:
        yield Finding(
            rule="CK1",
            severity=Severity.WARNING,
            message=f"Float32 weights were rounded to {half_format(job.plan.model)}, which no runtime would undo.",
            compared=f"{len(rounded)} of {len(stored)} tensors are float32 in the source",
            suggestion="convert from 16-bit weights when the model's author publishes them",
        )
    unused = idle_patterns(job.plan.model, job.plan.quantization.exclude.value)
    formats = job.plan.quantization.formats
    if formats.quantises and not formats.passed_through and unused:
        yield Finding(
            rule="CK2",
            severity=Severity.WARNING,
            message="An exclude pattern matches no module, so it keeps nothing in 16 bit.",
            compared=f"unmatched: {', '.join(unused)}",
            suggestion="correct quantization.exclude; trtkit convert --dry-run lists the tensor names",
        )
    if calibrated is None:
        return
    if calibrated.samples < job.plan.calibration.samples:
        yield Finding(
            rule="CK3",
            severity=Severity.WARNING,
            message="The calibration text is shorter than was asked for.",
            compared=f"{job.plan.calibration.samples} samples asked, {calibrated.samples} in the text",
            suggestion="give calibration.text a longer file, or lower calibration.samples",
        )
    if calibrated.experts_without_tokens:
        yield Finding(
            rule="CK4",
            severity=Severity.WARNING,
            message="Some experts saw no calibration token and took their layer's largest input scale.",
            compared=f"{calibrated.experts_without_tokens} experts without a token, {calibrated.tokens} tokens run",
            suggestion="raise calibration.samples",
        )
