"""What a checkpoint's bytes depend on, of all that a plan decides: the model, the number formats, the calibration.

Two plans with equal records give the same bytes from the same source, whoever decided, whatever is served with them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from trtllm_kit.frozen import Frozen
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.plan import CalibrationPlan, Plan, digest_of
from trtllm_kit.plan.quantization import Maker
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat, PartFormat, WeightFormat
from trtllm_kit.upstream.quant_algos import Layout


class FormatRecord(Frozen):
    """Number formats."""

    weights: WeightFormat
    kv_cache: KvFormat
    exclude: tuple[str, ...]
    """Module name patterns that stay in 16 bit; none where every weight does."""
    groups: dict[str, PartFormat] | None = None
    """Format of each part of a layer; None unless the weights are mixed."""
    group_size: int | None = None
    """Input elements that share a scale; None unless a format groups them."""
    algo: str | None = None
    """What the checkpoint calls the format of its weights; None for 16 bit."""

    @property
    def formats(self) -> Formats:
        """The formats as everything that counts or reads weights takes them."""
        return Formats(self.weights, self.kv_cache, self.exclude, self.groups or {}, self.group_size)


class RankRecord(Frozen):
    """How the weights are cut into files of ranks, and for which release, whose field names they take."""

    release: str
    tensor: int
    pipeline: int
    expert: int
    context: int = 1
    """Context ranks, which read the same files: the mapping names them."""
    unsaid: ClassVar[frozenset[str]] = frozenset({"context"})


class CalibrationRecord(Frozen):
    """What static scales are measured on; of the text its content, not where it lies."""

    samples: int
    tokens_per_sample: int
    seed: int = 0
    text: str
    """``sha256`` and 64 hex digits, ``the bundled one``, or ``unreadable``."""
    jsonl: bool = False
    """Whether each line of the text is a JSON record."""
    field: str | None = None
    """Field of a record that holds its text; None for the usual ones."""
    maker: Maker = "native"
    """Who measures, and writes the weights."""
    for_one_run: tuple[str, ...] = ()
    """What the command line of ``convert`` set; a profile that says otherwise is no drift."""


class ConversionRecord(Frozen):
    """One conversion, kept in its checkpoint as ``trtkit-conversion.json``."""

    schema_version: Literal[1] = 1
    model: ModelSpec
    layout: Layout = "unified_hf"
    ranks: RankRecord | None = None
    """None in the unified layout, which is one for all ranks and releases."""
    quantization: FormatRecord
    calibration: CalibrationRecord | None
    """None where no static scale is written, so that nothing is measured."""

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON, as 64 hex digits."""
        return digest_of(self.model_dump(mode="json"))


def conversion_of(plan: Plan) -> ConversionRecord:
    """Return the part of a plan that ``trtkit convert`` carries out."""
    formats = plan.quantization.formats
    return ConversionRecord(
        model=plan.model,
        layout=plan.layout.value,
        ranks=_ranks(plan) if plan.layout.value == "tensorrt_llm" else None,
        quantization=FormatRecord(
            weights=formats.weights,
            kv_cache=formats.kv_cache,
            exclude=formats.exclude if formats.quantises else (),
            groups=dict(formats.groups) or None,
            group_size=formats.group_size,
            algo=plan.quantization.algo.value if plan.quantization.algo else None,
        ),
        calibration=_calibration(plan.calibration) if formats.calibrates else None,
    )


def _ranks(plan: Plan) -> RankRecord:
    split = plan.parallelism
    return RankRecord(
        release=plan.release.value,
        tensor=split.tensor.value,
        pipeline=split.pipeline.value,
        expert=split.expert.value,
        context=split.split.context,
    )


def differences(before: ConversionRecord, now: ConversionRecord) -> tuple[str, ...]:
    """Name what differs between two conversions, with both values where they are short; empty for equal ones."""
    was, wanted = before.model_dump(mode="json"), now.model_dump(mode="json")
    if before.calibration is not None and now.calibration is not None:
        for name in _set_once(before.calibration):
            wanted["calibration"][name] = was["calibration"][name]
    return tuple(_difference(name, was[name], wanted[name]) for name in sorted(wanted) if was[name] != wanted[name])


def _set_once(calibration: CalibrationRecord) -> tuple[str, ...]:
    """Name the fields of a record that a profile need not agree with."""
    named = calibration.for_one_run
    return (*named, *(("jsonl", "field") if "text" in named else ()), "for_one_run") if named else ()


def _difference(name: str, was: Any, wanted: Any) -> str:
    if name == "model" or not isinstance(was, dict) or not isinstance(wanted, dict):
        return name
    keys = [key for key in wanted if was[key] != wanted[key]]
    return ", ".join(f"{name}.{key} (was {was[key]}, now {wanted[key]})" for key in keys)


def _calibration(asked: CalibrationPlan) -> CalibrationRecord:
    return CalibrationRecord(
        samples=asked.samples,
        tokens_per_sample=asked.tokens_per_sample,
        seed=asked.seed,
        text=_text_identity(asked),
        jsonl=asked.jsonl,
        field=asked.field if asked.jsonl else None,
        maker=asked.maker,
        for_one_run=asked.for_one_run,
    )


def _text_identity(asked: CalibrationPlan) -> str:
    if asked.text_sha256 is not None:
        return f"sha256 {asked.text_sha256}"
    return "the bundled one" if asked.text is None else "unreadable"
