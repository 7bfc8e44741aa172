"""The plan: what trtkit decided, every field with its value, source and reason. Frozen, JSON round trip, digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from trtllm_kit.findings import Finding
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import Calibration, Runtime, Serve

Source = Literal["profile", "default", "model", "hardware", "upstream", "rule"]
"""Who decided: the operator's document, its defaults, a fact, an upstream limit, or a rule of ours."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T")


class Decided(_Frozen, Generic[T]):
    """One decision."""

    value: T
    source: Source
    reason: str


class QuantizationPlan(_Frozen):
    """Number formats."""

    weights: Decided[str]
    kv_cache: Decided[str]
    exclude: Decided[tuple[str, ...]]
    """Module name patterns that stay in 16 bit."""


class ParallelismPlan(_Frozen):
    """How the model is split."""

    tensor: Decided[int]
    pipeline: Decided[int]
    expert: Decided[int]
    kv_replication: Decided[int]
    """Copies of every KV head over the tensor ranks; 1 unless there are fewer KV heads than ranks."""

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tensor.value * self.pipeline.value


class LimitsPlan(_Frozen):
    """What the server accepts at once."""

    max_batch_size: Decided[int]
    max_num_tokens: Decided[int]
    max_seq_len: Decided[int]
    max_beam_width: Decided[int]


class RuntimePlan(_Frozen):
    """Settings of the runtime."""

    runtime: Decided[Runtime]
    free_gpu_memory_fraction: Decided[float]
    tokens_per_block: Decided[int]
    enable_block_reuse: Decided[bool]
    scheduler_policy: Decided[str]
    chunked_prefill: Decided[bool]


class MemoryTerm(_Frozen):
    """One line of the memory table, bytes on the fullest GPU."""

    name: str
    bytes: int
    how: str
    """The arithmetic, with its numbers."""


class MemoryPlan(_Frozen):
    """Memory of the fullest GPU, term by term."""

    capacity_bytes: int
    terms: tuple[MemoryTerm, ...]
    """Everything but the KV cache."""
    kv_budget_bytes: int
    """What the runtime gives the KV cache: the fraction of what the terms leave; negative when they overflow."""
    kv_bytes_per_token: int
    kv_bytes_per_sequence: int
    """At the asked prompt and answer length, in whole blocks."""
    sequences: int
    """Sequences of the asked length that fit at once."""
    min_sequences: int
    """Sequences the profile asks for."""
    kv_bytes_longest: int
    """KV cache of one sequence of ``max_seq_len``, in whole blocks."""
    longest_sequence: int
    """Tokens of the longest sequence that fits alone, in whole blocks; no more than ``max_seq_len``."""
    parameters_even_split: int
    """All parameters divided by the ranks."""
    parameters_held: int
    """Parameters on the fullest rank, with what is replicated."""

    @property
    def holds_asked(self) -> bool:
        """Whether the asked sequences fit."""
        return self.sequences >= self.min_sequences

    @property
    def holds_longest(self) -> bool:
        """Whether one sequence of ``max_seq_len`` fits."""
        return self.kv_bytes_longest <= self.kv_budget_bytes

    @property
    def fits(self) -> bool:
        """Whether everything fits that was promised: the asked sequences, and the longest one."""
        return self.holds_asked and self.holds_longest


class CommunicationPlan(_Frozen):
    """Collectives of one prefill of the asked prompt."""

    all_reduces: int
    """In the decoder blocks: two a layer when tensor ranks share it."""
    payload_bytes: int
    """Bytes reduced, summed over the all-reduces (hidden state of every prompt token)."""
    sent_bytes_per_gpu: int
    """Bytes a GPU of the longest pipeline stage sends with the ring algorithm: its payload x 2 (n - 1) / n."""


class CalibrationPlan(Calibration):
    """What static activation scales are measured on, and how the text was known when the plan was made."""

    text_sha256: str | None = None
    """SHA-256 of the operator's text; None for the bundled one, and when there was no such file to read."""


class Plan(_Frozen):
    """Everything a stage after this needs to know."""

    schema_version: Literal[1] = 1
    profile: str
    model: ModelSpec
    hardware: str
    gpu: str
    compute_capability: int
    release: Decided[str]
    toolchain: Decided[str]
    quantization: QuantizationPlan
    calibration: CalibrationPlan
    parallelism: ParallelismPlan
    limits: LimitsPlan
    runtime: RuntimePlan
    serve: Serve
    environment: dict[str, str]
    memory: MemoryPlan
    communication: CommunicationPlan
    findings: tuple[Finding, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON, as 64 hex digits."""
        return digest_of(self.model_dump(mode="json"))

    def decisions(self) -> Iterator[tuple[str, Decided[object]]]:
        """Yield every decision with its dotted key, in the order the fields are declared."""
        yield from _decisions("", self)


def profile_key(key: str) -> str:
    """Return the key of a deploy profile that sets what the plan decides under ``key``."""
    return _PROFILE_KEYS.get(key, key)


_PROFILE_KEYS = {
    "release": "trtllm_version",
    "runtime.runtime": "runtime",
    "runtime.free_gpu_memory_fraction": "kv_cache.free_gpu_memory_fraction",
    "runtime.tokens_per_block": "kv_cache.tokens_per_block",
    "runtime.enable_block_reuse": "kv_cache.enable_block_reuse",
    "runtime.scheduler_policy": "scheduler.policy",
    "runtime.chunked_prefill": "scheduler.chunked_prefill",
}
"""Where an operator sets what the plan calls otherwise."""


def conversion_digest(plan: Plan) -> str:
    """Hash what a checkpoint's bytes depend on."""
    return digest_of(conversion_sections(plan))


def conversion_sections(plan: Plan) -> dict[str, Any]:
    """Return what a checkpoint's bytes depend on: the model, the number formats, and the calibration where one is run.

    Only values count, not who decided them or why; of a calibration text its content, not where it lies.
    """
    sections = plan.model_dump(mode="json", include={"model", "quantization"})
    sections["quantization"] = {name: decided["value"] for name, decided in sections["quantization"].items()}
    if {plan.quantization.weights.value, plan.quantization.kv_cache.value} != {"bf16"}:
        sections["calibration"] = {
            "samples": plan.calibration.samples,
            "tokens_per_sample": plan.calibration.tokens_per_sample,
            "text": _text_identity(plan.calibration),
        }
    return sections


def _text_identity(calibration: CalibrationPlan) -> str:
    if calibration.text is None:
        return "the bundled one"
    known = calibration.text_sha256
    return f"sha256 {known[:16]}" if known else "unreadable"


def digest_of(document: object) -> str:
    """Hash a JSON document independently of key order and spacing."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _decisions(prefix: str, section: BaseModel) -> Iterator[tuple[str, Decided[object]]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Decided):
            yield f"{prefix}{name}", value
        elif isinstance(value, QuantizationPlan | ParallelismPlan | LimitsPlan | RuntimePlan):
            yield from _decisions(f"{prefix}{name}.", value)
