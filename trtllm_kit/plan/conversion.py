"""What a checkpoint's bytes depend on, of all that a plan decides: the model, the number formats, the calibration.

Two plans with equal records give the same bytes from the same source, whoever decided, whatever is served with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from trtllm_kit.plan.plan import CalibrationPlan, Plan, digest_of
from trtllm_kit.spec.model import ModelSpec


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FormatRecord(_Frozen):
    """Number formats."""

    weights: str
    kv_cache: str
    exclude: tuple[str, ...]
    """Module name patterns that stay in 16 bit; none where every weight does."""


class CalibrationRecord(_Frozen):
    """What static scales are measured on; of the text its content, not where it lies."""

    samples: int
    tokens_per_sample: int
    text: str
    """``sha256`` and 64 hex digits, ``the bundled one``, or ``unreadable``."""


class ConversionRecord(_Frozen):
    """One conversion, kept in its checkpoint as ``trtkit-conversion.json``."""

    schema_version: Literal[1] = 1
    model: ModelSpec
    quantization: FormatRecord
    calibration: CalibrationRecord | None
    """None where no static scale is written, so that nothing is measured."""

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON, as 64 hex digits."""
        return digest_of(self.model_dump(mode="json"))


def conversion_of(plan: Plan) -> ConversionRecord:
    """Return the part of a plan that ``trtkit convert`` carries out."""
    formats = plan.quantization
    quantised = formats.weights.value != "bf16"
    return ConversionRecord(
        model=plan.model,
        quantization=FormatRecord(
            weights=formats.weights.value,
            kv_cache=formats.kv_cache.value,
            exclude=formats.exclude.value if quantised else (),
        ),
        calibration=_calibration(plan.calibration) if quantised else None,
    )


def differences(before: ConversionRecord, now: ConversionRecord) -> tuple[str, ...]:
    """Name what differs between two conversions, with both values where they are short; empty for equal ones."""
    was, wanted = before.model_dump(mode="json"), now.model_dump(mode="json")
    return tuple(_difference(name, was[name], wanted[name]) for name in sorted(wanted) if was[name] != wanted[name])


def _difference(name: str, was: Any, wanted: Any) -> str:
    if name == "model" or not isinstance(was, dict) or not isinstance(wanted, dict):
        return name
    keys = [key for key in wanted if was[key] != wanted[key]]
    return ", ".join(f"{name}.{key} (was {was[key]}, now {wanted[key]})" for key in keys)


def _calibration(asked: CalibrationPlan) -> CalibrationRecord:
    return CalibrationRecord(
        samples=asked.samples, tokens_per_sample=asked.tokens_per_sample, text=_text_identity(asked)
    )


def _text_identity(asked: CalibrationPlan) -> str:
    if asked.text_sha256 is not None:
        return f"sha256 {asked.text_sha256}"
    return "the bundled one" if asked.text is None else "unreadable"
