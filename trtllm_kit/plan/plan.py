"""The plan: what trtkit decided, every field with its value, source and reason. Frozen, JSON round trip, digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Literal, TypeVar

from trtllm_kit.findings import Finding
from trtllm_kit.frozen import Frozen
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.quantization import Maker
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import Runtime, Serve
from trtllm_kit.spec.profile_build import OptionValue, Runner
from trtllm_kit.spec.profile_formats import Backend, KvFormat, PartFormat, WeightFormat
from trtllm_kit.spec.profile_sections import SpeculationKind
from trtllm_kit.spec.system_text import PathText
from trtllm_kit.upstream.quant_algos import Layout

Source = Literal["profile", "default", "model", "hardware", "upstream", "rule"]
"""Who decided: the operator's document, its defaults, a fact, an upstream limit, or a rule of ours."""


T = TypeVar("T")


class Decided(Frozen, Generic[T]):
    """One decision."""

    value: T
    source: Source
    reason: str


class QuantizationPlan(Frozen):
    """Number formats."""

    weights: Decided[WeightFormat]
    kv_cache: Decided[KvFormat]
    exclude: Decided[tuple[str, ...]]
    """Module name patterns that stay in 16 bit."""
    groups: Decided[dict[str, PartFormat]] | None = None
    """Format of ``attention``, ``feed_forward`` and ``experts``; None unless the weights are mixed."""
    group_size: Decided[int] | None = None
    """Input elements that share a scale; None unless a format groups them."""
    algo: Decided[str] | None = None
    """What the release calls the format of the weights in the plan's layout; None where every weight is 16 bit."""
    passed_through: Decided[bool] | None = None
    """Whether the weights come in these formats already and stay as they are; None for plain weights."""

    @property
    def formats(self) -> Formats:
        """The values alone, as everything that counts or writes takes them."""
        return Formats(
            weights=self.weights.value,
            kv_cache=self.kv_cache.value,
            exclude=self.exclude.value,
            groups=self.groups.value if self.groups else {},
            group_size=self.group_size.value if self.group_size else None,
            passed_through=self.passed_through is not None and self.passed_through.value,
        )


class ParallelismPlan(Frozen):
    """How the model is split."""

    tensor: Decided[int]
    pipeline: Decided[int]
    expert: Decided[int]
    replicas: Decided[int]
    """Copies of the whole server, each on GPUs of its own; everything else in a plan is about one of them."""
    kv_replication: Decided[int]
    """Copies of every KV head over the tensor ranks; 1 unless there are fewer KV heads than ranks."""
    attention_dp: Decided[bool] | None = None
    """Whether tensor ranks have requests of their own; None where that was not asked."""
    context: Decided[int] | None = None
    """Ranks that each take a part of every sequence; None where that was not asked."""
    unsaid: ClassVar[frozenset[str]] = frozenset({"attention_dp", "context"})

    @property
    def world_size(self) -> int:
        """Ranks of one replica."""
        return self.split.world_size

    @property
    def split(self) -> Split:
        """The values alone, as everything that counts takes them; places for experts are an engine's setting."""
        return Split(
            tensor=self.tensor.value,
            pipeline=self.pipeline.value,
            expert=self.expert.value,
            replicas=self.replicas.value,
            attention_dp=self.attention_dp is not None and self.attention_dp.value,
            context=self.context.value if self.context else 1,
        )


class LimitsPlan(Frozen):
    """What the server accepts at once."""

    max_batch_size: Decided[int]
    max_num_tokens: Decided[int]
    max_seq_len: Decided[int]
    max_beam_width: Decided[int]


class RuntimePlan(Frozen):
    """Settings of the runtime."""

    runtime: Decided[Runtime]
    free_gpu_memory_fraction: Decided[float]
    tokens_per_block: Decided[int]
    enable_block_reuse: Decided[bool]
    scheduler_policy: Decided[str]
    chunked_prefill: Decided[bool]
    enable_partial_reuse: Decided[bool]
    max_attention_window: Decided[tuple[int, ...]]
    """Tokens each layer keeps, one number when all agree; empty when every layer keeps all of a sequence."""
    host_cache_bytes: Decided[int] | None = None
    """Host memory of each rank for evicted blocks; None without."""
    secondary_offload_min_priority: Decided[int] | None = None


class EnginePlan(Frozen):
    """Settings of the PyTorch backend; ``auto`` is left to the release."""

    overlap_scheduler: Decided[bool]
    allreduce_strategy: Decided[str]
    cuda_graphs: Decided[bool]
    cuda_graph_max_batch_size: Decided[int]
    cuda_graph_padding: Decided[bool]
    autotuner: Decided[bool]
    moe_backend: Decided[str]
    min_latency: Decided[bool]
    stream_interval: Decided[int]
    expert_slots: Decided[int] | None = None
    """Places for experts over all expert ranks; None keeps one of each expert."""
    attention_dp_balance: Decided[bool] | None = None
    """Whether prompts wait until every rank with requests of its own has one; None where that was not asked."""
    attention_dp_timeout_iters: Decided[int] | None = None
    attention_dp_wait_iters: Decided[int] | None = None
    unsaid: ClassVar[frozenset[str]] = frozenset({
        "attention_dp_balance", "attention_dp_timeout_iters", "attention_dp_wait_iters",
    })  # fmt: skip


class SpeculationPlan(Frozen):
    """Speculative decoding; what means nothing to the kind, or was not asked, is None."""

    kind: Decided[SpeculationKind]
    draft_tokens: Decided[int]
    draft_checkpoint: Decided[str] | None = None
    capture_layers: Decided[tuple[int, ...]] | None = None
    acceptance_threshold: Decided[float] | None = None
    """Share of the drafted tokens, 0 to 1, below which speculation ends."""
    acceptance_window: Decided[int] | None = None
    max_ngram: Decided[int] | None = None


class BuildPlan(Frozen):
    """How ``trtllm-build`` is run, for plans of that toolchain."""

    options: dict[str, Decided[OptionValue]]
    """By option with its dashes, in the order they are passed; places are left to the toolchain."""
    runner: Decided[Runner]
    image: Decided[str] | None = None
    """Container of a runner that needs one; None for the others, and where no container holds the release."""
    template: Decided[tuple[str, ...]] | None = None
    timeout_seconds: Decided[float]
    draft_options: dict[str, Decided[OptionValue]] | None = None
    """Those of the draft model's engine, which suit its own format and ranks; None without one."""
    draft_ranks: Decided[int] | None = None
    """Engine files of the draft model that is built beside the model's; None without one."""


class MemoryTerm(Frozen):
    """One line of the memory table, bytes on the fullest GPU."""

    name: str
    bytes: int
    how: str
    """The arithmetic, with its numbers."""


class MemoryPlan(Frozen):
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
    """KV cache of one request of ``max_seq_len``, in whole blocks; its beams part for an answer as the load says."""
    longest_sequence: int
    """Tokens of the longest sequence that fits alone, in whole blocks; no more than ``max_seq_len``."""
    parameters_even_split: int
    """All parameters divided by the ranks."""
    parameters_held: int
    """Parameters on the fullest rank, with what is replicated."""
    data_ranks: int = 1
    """Ranks whose caches hold sequences of their own: those of attention data parallelism. Other bytes are a rank's."""
    unsaid: ClassVar[frozenset[str]] = frozenset({"data_ranks"})

    @property
    def asked_bytes(self) -> int:
        """KV cache that the asked sequences take on the fullest GPU."""
        return -(-self.min_sequences // self.data_ranks) * self.kv_bytes_per_sequence

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


class CommunicationPlan(Frozen):
    """Collectives of one prefill of the asked prompt."""

    all_reduces: int
    """In the decoder blocks: two a layer when tensor ranks share it."""
    payload_bytes: int
    """Bytes reduced, summed over the all-reduces (hidden state of every prompt token)."""
    sent_bytes_per_gpu: int
    """Bytes a GPU of the longest pipeline stage sends with the ring algorithm: its payload x 2 (n - 1) / n."""


class CalibrationPlan(Frozen):
    """What static activation scales are measured on: the profile's section, and how its text was known at that time."""

    samples: int
    tokens_per_sample: int
    text: PathText | None = None
    """Where this machine has it; a stored plan leaves that out and keeps the hash."""
    field: str | None = None
    backend: Backend = "auto"
    python: PathText | None = None
    """Interpreter of ModelOpt's environment; a stored plan leaves it out too."""
    seed: int = 0
    text_sha256: str | None = None
    """SHA-256 of the operator's text; None for the bundled one, and when there was no such file to read."""
    jsonl: bool = False
    """Whether each line of the text is a JSON record, by the name of its file."""
    for_one_run: tuple[str, ...] = ()
    """Which of these the command line set, in place of the profile."""
    maker: Maker = "native"
    """Who measures and writes the weights."""


class Plan(Frozen):
    """Everything a stage after this needs to know."""

    schema_version: Literal[1] = 1
    profile: str
    model: ModelSpec
    hardware: str
    gpu: str
    compute_capability: int
    release: Decided[str]
    toolchain: Decided[str]
    layout: Decided[Layout]
    """How the checkpoint lies on disk: as ModelOpt exports to Hugging Face, or as rank files for engines."""
    quantization: QuantizationPlan
    calibration: CalibrationPlan
    parallelism: ParallelismPlan
    limits: LimitsPlan
    runtime: RuntimePlan
    engine: EnginePlan
    speculation: SpeculationPlan | None = None
    build: BuildPlan | None = None
    """None for toolchains that run no builder."""
    llm_api: dict[str, Decided[Any]] | None = None
    """Keys of the LLM API's YAML that the profile sets by ``llm_api.options``, dotted; None without."""
    serve: Serve
    environment: dict[str, Decided[str]]
    """Variables of the server process; the reason is what each of them does in the release."""
    memory: MemoryPlan
    communication: CommunicationPlan
    findings: tuple[Finding, ...]
    unsaid: ClassVar[frozenset[str]] = frozenset({"llm_api"})

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON without places, as 64 hex digits: a stored plan has that of its original."""
        return digest_of(self.without_places().model_dump(mode="json"))

    def without_places(self) -> Plan:
        """Return the plan without paths of calibration: that of the text, for which its hash stands, and of Python."""
        calibration = self.calibration.model_copy(update={"text": None, "python": None})
        return self.model_copy(update={"calibration": calibration})

    def decisions(self) -> Iterator[tuple[str, Decided[object]]]:
        """Yield every decision with its dotted key, in the order the fields are declared."""
        yield from _decisions("", self)
        options: dict[str, Any] = dict(self.build.options) if self.build else {}
        yield from ((f"build.options.{name.removeprefix('--')}", decided) for name, decided in options.items())
        yield from ((f"llm_api.options.{name}", decided) for name, decided in (self.llm_api or {}).items())
        variables: dict[str, Any] = dict(self.environment)
        yield from ((f"environment.{name}", decided) for name, decided in variables.items())

    @property
    def variables(self) -> dict[str, str]:
        """The environment as a process takes it."""
        return {name: decided.value for name, decided in self.environment.items()}


def profile_key(key: str) -> str:
    """Return the key of a deploy profile that sets what the plan decides under ``key``."""
    return _PROFILE_KEYS.get(key, key)


_PROFILE_KEYS = {
    "release": "trtllm_version",
    "build.timeout_seconds": "build.timeout",
    "build.draft_ranks": "speculation.draft_checkpoint",
    "runtime.runtime": "runtime",
    "runtime.free_gpu_memory_fraction": "kv_cache.free_gpu_memory_fraction",
    "runtime.tokens_per_block": "kv_cache.tokens_per_block",
    "runtime.enable_block_reuse": "kv_cache.enable_block_reuse",
    "runtime.enable_partial_reuse": "kv_cache.enable_partial_reuse",
    "runtime.max_attention_window": "kv_cache.max_attention_window",
    "runtime.host_cache_bytes": "kv_cache.host_cache_bytes",
    "runtime.secondary_offload_min_priority": "kv_cache.secondary_offload_min_priority",
    "runtime.scheduler_policy": "scheduler.policy",
    "runtime.chunked_prefill": "scheduler.chunked_prefill",
}
"""Where an operator sets what the plan calls otherwise."""


def digest_of(document: object) -> str:
    """Hash a JSON document independently of key order and spacing."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


_SECTIONS = (QuantizationPlan, ParallelismPlan, LimitsPlan, RuntimePlan, EnginePlan, SpeculationPlan, BuildPlan)


def _decisions(prefix: str, section: Frozen) -> Iterator[tuple[str, Decided[object]]]:
    for name in section.field_names:
        value = getattr(section, name)
        if isinstance(value, Decided):
            yield f"{prefix}{name}", value
        elif isinstance(value, _SECTIONS):
            yield from _decisions(f"{prefix}{name}.", value)
