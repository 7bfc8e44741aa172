"""What is timed: a model in its formats, split over a machine, with the engine settings that steps depend on."""

from __future__ import annotations

from dataclasses import dataclass

from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.ceilings import Backend
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafting, as far as time depends on it."""

    kind: str
    """The profile's word: ``eagle3``, ``mtp``, ``draft_target``, ``ngram``."""
    draft_tokens: int
    acceptance: tuple[float, ...] = ()
    """Chance that the draft token of each position is taken when all before it were; empty when it is not known."""
    draft_bytes: int = 0
    """Bytes of draft weights that a rank reads for one draft token; 0 where the text itself is the draft."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One replica, light enough to make thousands of with ``dataclasses.replace``."""

    model: ModelSpec
    hardware: Hardware
    formats: Formats
    split: Split
    release: str
    max_batch_size: int
    """Requests of the whole replica, which generate at once."""
    max_num_tokens: int
    """Tokens of one step; with attention data parallelism, of each rank."""
    max_seq_len: int
    kv_tokens: int
    """Tokens that the KV cache of the whole replica holds, in whole blocks."""
    tokens_per_block: int = 32
    attention_dp: bool = False
    """Tensor ranks each attend for requests of their own, and hold all heads."""
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
    def attention_ranks(self) -> int:
        """Ranks that share out the heads of one request: 1 with attention data parallelism."""
        return 1 if self.attention_dp else self.split.tensor


def subject_of(plan: Plan, hardware: Hardware, *, sequence_tokens: int | None = None) -> Subject:
    """Return what a plan decided, as far as time depends on it.

    ``sequence_tokens`` is the asked prompt and answer length together; where it is given, the cache's capacity is
    counted at that length, at which layers with a window keep less than every token.
    """
    limits, runtime, memory = plan.limits, plan.runtime, plan.memory
    parallel = plan.parallelism
    block = runtime.tokens_per_block.value
    return Subject(
        model=plan.model,
        hardware=hardware,
        formats=plan.quantization.formats,
        split=Split(
            tensor=parallel.tensor.value,
            pipeline=parallel.pipeline.value,
            expert=parallel.expert.value,
            replicas=parallel.replicas.value,
            expert_slots=plan.engine.expert_slots.value if plan.engine.expert_slots else 0,
        ),
        release=plan.release.value,
        max_batch_size=limits.max_batch_size.value,
        max_num_tokens=limits.max_num_tokens.value,
        max_seq_len=limits.max_seq_len.value,
        kv_tokens=kv_tokens(
            memory.kv_budget_bytes, memory.kv_bytes_per_token, memory.kv_bytes_per_sequence, block, sequence_tokens
        ),
        tokens_per_block=block,
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


UNBOUNDED_TOKENS = 1 << 40
"""Stands for a cache that no number of tokens fills."""


def _speculation(plan: Plan) -> Speculation | None:
    asked = plan.speculation
    if asked is None:
        return None
    weights = next((term.bytes for term in plan.memory.terms if term.name == "draft weights"), 0)
    return Speculation(kind=asked.kind.value, draft_tokens=asked.draft_tokens.value, draft_bytes=weights)
