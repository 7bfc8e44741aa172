"""What is timed: a model in its formats, split over a machine, with the engine settings that steps depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from trtllm_kit.estimate.draft import accepted_tokens
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.ceilings import Backend
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.llm_api import llm_api_key
from trtllm_kit.upstream.speculation import drafts_at_once


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafting, as far as time depends on it."""

    kind: str
    """The profile's word: ``eagle3``, ``mtp``, ``draft_target``, ``ngram``, ``pard``, ``sa``, ``auto``."""
    draft_tokens: int
    acceptance: tuple[float, ...] = ()
    """Chance that the draft token of each position is taken when all before it were; empty when it is not known."""
    draft_bytes: int = 0
    """Bytes of draft weights that a rank reads for one draft token; 0 where the text itself is the draft."""

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a request gains in a step on average: the drafts that are taken, and one of the model's own."""
        return 1.0 + accepted_tokens(self.acceptance, self.draft_tokens)


@dataclass(frozen=True, slots=True)
class EveryRank:
    """Prompts wait until each rank has one (``attention_dp_config`` with ``enable_balance``)."""

    rounds: int
    """After so many they go all the same (``timeout_iters``)."""
    batching: int
    """Rounds that they wait for more when each rank has one (``batching_wait_iters``)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One replica, light enough to make thousands of with ``dataclasses.replace``."""

    model: ModelSpec
    hardware: Hardware
    formats: Formats
    split: Split
    release: str
    max_batch_size: int
    """Requests of one step: of one micro-batch of the pipeline, and of one rank where ranks have requests of their own.

    ``slots`` are the whole replica's.
    """
    max_num_tokens: int
    """Tokens of one step; with attention data parallelism, of each rank."""
    max_seq_len: int
    kv_tokens: int
    """Tokens that the KV cache of the whole replica holds, in whole blocks."""
    tokens_per_block: int = 32
    balance: EveryRank | None = None
    """How prompts wait for other ranks, where ranks have requests of their own; None where they do not wait."""
    chunked_prefill: bool = False
    block_reuse: bool = False
    scheduler_policy: str = "GUARANTEED_NO_EVICT"
    cuda_graphs: bool = True
    overlap_scheduler: bool = True
    speculation: Speculation | None = None
    backend: Backend = "pytorch"
    served: bool = True
    """Answers are streamed to clients, token by token; False where an engine runs a list of requests by itself."""

    @property
    def attention_dp(self) -> bool:
        """Whether tensor ranks each attend for requests of their own, and hold all heads."""
        return self.split.attention_dp

    @property
    def slots(self) -> int:
        """Requests of the whole replica that are under way at once."""
        return self.split.places(self.max_batch_size)

    @property
    def width(self) -> int:
        """Tokens that a generating request brings to a step: one, and what is drafted for it."""
        return 1 + (self.speculation.draft_tokens if self.speculation else 0)

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a generating request gains in a step on average; 1 without drafts."""
        return self.speculation.tokens_a_step if self.speculation else 1.0


def subject_of(plan: Plan, hardware: Hardware, *, sequence_tokens: int | None = None) -> Subject:
    """Return what a plan decided, as far as time depends on it.

    ``sequence_tokens`` is the asked prompt and answer length together; where it is given, the cache's capacity is
    counted at that length, at which layers with a window keep less than every token. What a plan says of a rank with
    requests of its own is that many times as much of the replica.
    """
    limits, runtime, memory = plan.limits, plan.runtime, plan.memory
    slots = plan.engine.expert_slots
    split = replace(plan.parallelism.split, expert_slots=slots.value if slots else 0)
    block = runtime.tokens_per_block.value
    return Subject(
        model=plan.model,
        hardware=hardware,
        formats=plan.quantization.formats,
        split=split,
        release=plan.release.value,
        max_batch_size=limits.max_batch_size.value,
        max_num_tokens=limits.max_num_tokens.value,
        max_seq_len=limits.max_seq_len.value,
        kv_tokens=split.data
        * kv_tokens(
            memory.kv_budget_bytes, memory.kv_bytes_per_token, memory.kv_bytes_per_sequence, block, sequence_tokens
        ),
        tokens_per_block=block,
        balance=_balance(plan),
        chunked_prefill=runtime.chunked_prefill.value,
        block_reuse=runtime.enable_block_reuse.value,
        scheduler_policy=runtime.scheduler_policy.value,
        cuda_graphs=plan.engine.cuda_graphs.value,
        overlap_scheduler=plan.engine.overlap_scheduler.value,
        speculation=_speculation(plan),
        backend="tensorrt" if plan.toolchain.value == "trtllm-build" else "pytorch",
    )


def kv_tokens(budget: int, per_token: int, per_sequence: int, block: int, sequence_tokens: int | None) -> int:
    """Return the tokens that a KV budget of that many bytes holds, in whole blocks of ``block`` tokens.

    A model whose layers cache nothing holds any number of them: ``UNBOUNDED_TOKENS``.
    """
    if sequence_tokens and per_sequence:
        return max(0, budget * sequence_tokens // per_sequence // block * block)
    if not per_token:
        return UNBOUNDED_TOKENS
    return max(0, budget // per_token // block * block)


def _balance(plan: Plan) -> EveryRank | None:
    """Return how prompts wait for other ranks; times that the plan leaves to the release are the release's."""
    engine = plan.engine
    if not plan.parallelism.split.attention_dp or engine.attention_dp_balance is None:
        return None
    timeout, wait = engine.attention_dp_timeout_iters, engine.attention_dp_wait_iters
    return EveryRank(
        timeout.value if timeout else _default(plan, "attention_dp_config.timeout_iters"),
        wait.value if wait else _default(plan, "attention_dp_config.batching_wait_iters"),
    )


def _default(plan: Plan, key: str) -> int:
    known = llm_api_key(plan.release.value, key)
    return known.default if known is not None and isinstance(known.default, int) else 0


UNBOUNDED_TOKENS = 1 << 40
"""Stands for a cache that no number of tokens fills."""


def _speculation(plan: Plan) -> Speculation | None:
    asked = plan.speculation
    if asked is None:
        return None
    weights = next((term.bytes for term in plan.memory.terms if term.name == "draft weights"), 0)
    tokens = asked.draft_tokens.value
    each = ceil(weights / tokens) if drafts_at_once(asked.kind.value, plan.release.value) else weights
    return Speculation(kind=asked.kind.value, draft_tokens=tokens, draft_bytes=each)
