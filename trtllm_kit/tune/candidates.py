"""What there is to choose from: shapes, which decide weights and step times, and the limits around each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.spec.profile_formats import MIXED, KvFormat, WeightFormat
from trtllm_kit.spec.profile_sections import SpeculationKind
from trtllm_kit.tune.question import KNOWN_TO_HOLD, Question
from trtllm_kit.upstream.families import attention_dp_support, context_parallel_support
from trtllm_kit.upstream.precision import formats_for
from trtllm_kit.upstream.quant_algos import Layout
from trtllm_kit.upstream.releases import release

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
STEP_TOKENS = (1024, 2048, 4096, 8192, 16384, 32768)
USUAL_FRACTION = 0.9
"""Share of the free memory that is tried beside the profile's own; more leaves too little for peaks."""
POLICIES = ("guaranteed_no_evict", "max_utilization")
EXPERT_RANKS_TRIED = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """What weights, memory and step times depend on: one replica's ranks and formats on a machine."""

    machine: str
    tensor: int
    pipeline: int
    expert: int
    weights: WeightFormat | None
    """None for weights that come in a mixture of formats, or in one that no word of a profile names."""
    kv_cache: KvFormat | None
    kind: SpeculationKind | None = None
    draft_tokens: int = 0
    """Tokens drafted a step; 0 without speculation."""
    attention_dp: bool = False
    """Tensor ranks have requests of their own, and the limits are of each."""
    context: int = 1
    """Ranks that each take a part of every sequence."""

    @property
    def split(self) -> Split:
        """How one replica is shared out."""
        return Split(
            tensor=self.tensor,
            pipeline=self.pipeline,
            expert=self.expert,
            attention_dp=self.attention_dp,
            context=self.context,
        )

    @property
    def ranks(self) -> int:
        """GPUs of one replica."""
        return self.split.world_size

    def words(self) -> str:
        """Name it shortly, e.g. ``fp8, KV fp8, TP4 PP2 EP1, draft 3``."""
        formats = f"{self.weights or 'stored'}, KV {self.kv_cache or 'stored'}"
        experts = f" EP{self.expert}" if self.expert > 1 else ""
        drafts = f", {self.kind} {self.draft_tokens}" if self.draft_tokens else ""
        parts = f" CP{self.context}" if self.context > 1 else ""
        shared = " attention DP" * self.attention_dp
        return f"{formats}, TP{self.tensor} PP{self.pipeline}{parts}{experts}{shared}{drafts}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration that could run: a shape, how often, and its limits."""

    shape: Shape
    replicas: int
    max_batch_size: int
    max_num_tokens: int
    chunked_prefill: bool
    kv_fraction: float
    policy: str
    kv_tokens: int
    """Tokens that the KV cache of one replica holds."""

    @property
    def gpus(self) -> int:
        """GPUs at work."""
        return self.shape.ranks * self.replicas

    @property
    def slots(self) -> int:
        """Requests that one replica has a place for."""
        return self.shape.split.places(self.max_batch_size)

    def holds(self, tokens: int) -> int:
        """Return how many requests of that many tokens the caches of one replica hold: each is whole on its ranks."""
        data = self.shape.split.data
        return data * (self.kv_tokens // data // tokens)

    def words(self) -> str:
        """Name it in one line."""
        chunks = "chunked" if self.chunked_prefill else "whole prompts"
        return (
            f"{self.shape.words()}, {self.replicas} x {self.shape.ranks} GPU{'s' if self.shape.ranks > 1 else ''}, "
            f"batch {self.max_batch_size}, {self.max_num_tokens} tokens a step, {chunks}"
        )


def shapes(
    model: ModelSpec, profile: DeployProfile, layout: Layout, machines: Iterable[Hardware], question: Question
) -> list[Shape]:
    """Return every shape worth asking the rules about, for that layout of the checkpoint; some of them cannot run."""
    found = []
    for machine in machines:
        taken = Taken.by(machine, release(profile.trtllm_version).version, layout)
        for weights, kv_cache in format_pairs(model, profile, taken, question):
            for tensor, pipeline, expert in splits(model, machine):
                ranks = (machine.name, tensor, pipeline, expert, weights, kv_cache)
                modes = [(shared, 1) for shared in attention_modes(model, profile, layout, tensor)]
                most = machine.gpus // (tensor * pipeline)
                modes += [(False, parts) for parts in context_counts(model, profile, layout, most)]
                for kind, drafted in drafts(model, profile, question):
                    found += [Shape(*ranks, kind, drafted, shared, parts) for shared, parts in modes]
    return found


def context_counts(model: ModelSpec, profile: DeployProfile, layout: Layout, most: int) -> tuple[int, ...]:
    """Return how many context ranks to try beside one, up to ``most``: powers of two, in engines known to take them."""
    version = release(profile.trtllm_version).version
    known = context_parallel_support(model.architecture, version) is not None
    if layout != "tensorrt_llm" or not (known or profile.parallelism.context > 1):
        return ()
    return tuple(1 << power for power in range(1, most.bit_length()))


def attention_modes(model: ModelSpec, profile: DeployProfile, layout: Layout, tensor: int) -> tuple[bool, ...]:
    """Return whether to try tensor ranks that share attention, and such with requests of their own.

    The latter where there are experts to share out and the release is known to run the architecture so, or the profile
    asks for it; whole models on every rank are what replicas are.
    """
    routed = any(isinstance(layer.feed_forward, Experts) for layer in model.layers)
    if not routed or tensor == 1 or layout != "unified_hf":
        return (False,)
    known = attention_dp_support(model.architecture, release(profile.trtllm_version).version) is not None
    return (False, True) if known or profile.parallelism.attention_dp else (False,)


def splits(model: ModelSpec, machine: Hardware) -> Iterator[tuple[int, int, int]]:
    """Yield tensor, pipeline and expert ranks that a machine has GPUs for, whether the model allows them or not."""
    sizes = rank_counts(machine.gpus)
    routed = any(isinstance(layer.feed_forward, Experts) for layer in model.layers)
    for tensor in sizes:
        for pipeline in sizes:
            if tensor * pipeline > machine.gpus:
                break
            for expert in rank_counts(tensor) if routed else (1,):
                if tensor % expert == 0 and expert <= EXPERT_RANKS_TRIED:
                    yield tensor, pipeline, expert


def rank_counts(gpus: int) -> tuple[int, ...]:
    """Return the rank counts to try, ascending: divisors of the GPUs, which leave none idle, and powers of two."""
    powers = (1 << power for power in range(gpus.bit_length()))
    divisors = (count for count in range(1, gpus + 1) if gpus % count == 0)
    return tuple(sorted({*powers, *divisors}))


@dataclass(frozen=True, slots=True)
class Taken:
    """Formats that a GPU takes in a release."""

    weights: tuple[str, ...]
    kv_cache: tuple[str, ...]

    @classmethod
    def by(cls, machine: Hardware, version: str, layout: Layout) -> Taken:
        """Look them up."""
        capability = machine.gpu.compute_capability
        return cls(
            formats_for("weights", capability, version, layout), formats_for("kv_cache", capability, version, layout)
        )


def format_pairs(
    model: ModelSpec, profile: DeployProfile, taken: Taken, question: Question
) -> tuple[tuple[WeightFormat | None, KvFormat | None], ...]:
    """Return formats of weights and KV cache that the GPU takes; weights that come quantised stay what they are."""
    own = profile.quantization
    if model.stored is not None:
        weights = model.stored.weights
        if weights is None or weights == MIXED:
            return ((None, None),)
        kept = dict.fromkeys((model.stored.kv_cache, own.kv_cache))
        return tuple((weights, cache) for cache in kept if cache in taken.kv_cache)
    wanted = question.weights or (*KNOWN_TO_HOLD, own.weights)
    pairs: list[tuple[WeightFormat | None, KvFormat | None]] = []
    for weights in dict.fromkeys(wanted):
        if question.weights is None and weights != own.weights and weights not in taken.weights:
            continue
        caches: tuple[KvFormat, ...] = ("bf16",) if weights == "bf16" else ("bf16", "fp8")
        pairs += [(weights, cache) for cache in caches if cache in taken.kv_cache]
        if weights == own.weights and (weights, own.kv_cache) not in pairs:
            pairs.append((weights, own.kv_cache))
    return tuple(pairs)


def drafts(
    model: ModelSpec, profile: DeployProfile, question: Question
) -> tuple[tuple[SpeculationKind | None, int], ...]:
    """Return the kinds and lengths of drafts to try, none first; only ``question.acceptance`` tells what they bring."""
    if not question.acceptance:
        return ((None, 0),)
    if profile.speculation is not None:
        kind: SpeculationKind = profile.speculation.kind
    else:
        kind = "mtp" if model.prediction_layers else "ngram"
    return ((None, 0), *((kind, length) for length in range(1, len(question.acceptance) + 1)))


def replica_counts(machine: Hardware, ranks: int) -> tuple[int, ...]:
    """Return how many replicas to try, the most first: as many as there is room for, halved down to one."""
    counts, most = [], machine.gpus // ranks
    while most >= 1:
        counts.append(most)
        most //= 2
    return tuple(counts)


def ladder(steps: Iterable[int], own: int) -> tuple[int, ...]:
    """Return the values of a limit to try, ascending, the profile's own among them."""
    return tuple(sorted({*steps, own}))


def shape_changes(shape: Shape, profile: DeployProfile, question: Question) -> dict[str, Any]:
    """Return the profile keys, dotted, that ask for a shape and for the question's load."""
    changes: dict[str, Any] = {
        "parallelism.tensor": shape.tensor,
        "parallelism.pipeline": shape.pipeline,
        "parallelism.expert": shape.expert,
        "parallelism.attention_dp": shape.attention_dp,
        "parallelism.context": shape.context,
        "load.input_tokens": question.input_tokens,
        "load.output_tokens": question.output_tokens,
        "limits.max_seq_len": max(profile.limits.max_seq_len, question.tokens),
    }
    if catalogue_name(shape.machine) != profile.hardware:
        changes |= {"hardware": catalogue_name(shape.machine), "gpu_memory": None}
    changes |= _format_changes(shape, profile)
    if not shape.attention_dp:
        changes |= _without_balance(profile)
    if shape.draft_tokens:
        asked = profile.speculation.model_dump() if profile.speculation else {"kind": shape.kind}
        changes["speculation"] = asked | {"draft_tokens": shape.draft_tokens}
    elif profile.speculation is not None:
        changes["speculation"] = None
    return changes


def _without_balance(profile: DeployProfile) -> Mapping[str, Any]:
    """Return the changes that leave out what is asked of ranks that wait for each other."""
    unset = {"attention_dp_balance": False, "attention_dp_timeout_iters": None, "attention_dp_wait_iters": None}
    return {f"engine.{name}": value for name, value in unset.items() if getattr(profile.engine, name) != value}


def catalogue_name(machine: str) -> str:
    """Return what the catalogue calls a machine that may stand for one of its power limits, e.g. ``h200x8@600W``."""
    return machine.partition("@")[0]


def _format_changes(shape: Shape, profile: DeployProfile) -> Mapping[str, Any]:
    if shape.weights is None:
        return {}
    changes: dict[str, Any] = {"quantization.weights": shape.weights, "quantization.kv_cache": shape.kv_cache}
    own = profile.quantization
    if shape.weights != own.weights and own.groups is not None:
        changes["quantization.groups"] = None
    if shape.weights != own.weights and own.group_size != "auto":
        changes["quantization.group_size"] = "auto"
    return changes


def candidate_changes(
    candidate: Candidate, profile: DeployProfile, question: Question, concurrency: int
) -> dict[str, Any]:
    """Return the profile keys, dotted, that ask for a candidate; ``concurrency`` is what one replica must hold."""
    return shape_changes(candidate.shape, profile, question) | {
        "parallelism.replicas": candidate.replicas,
        "limits.max_batch_size": candidate.max_batch_size,
        "limits.max_num_tokens": candidate.max_num_tokens,
        "scheduler.chunked_prefill": candidate.chunked_prefill,
        "scheduler.policy": candidate.policy,
        "kv_cache.free_gpu_memory_fraction": candidate.kv_fraction,
        "load.min_concurrency": max(1, concurrency),
    }


def loss_rank(weights: WeightFormat | None) -> int:
    """Return how much a format loses beside others: its bits, fewer being worse; stored weights lose nothing more."""
    return 16 if weights is None or weights == "mixed" else FORMATS[weights].bits
