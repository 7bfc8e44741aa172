"""Whether the rules let a shape run, and what it leaves for the KV cache under any limits.

The memory table of a plan grows by the same bytes with each further request of ``max_batch_size`` and each further
token of ``max_num_tokens``, so three plans of a shape tell of all its limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trtllm_kit.estimate.subject import Speculation, Subject, kv_tokens, subject_of
from trtllm_kit.findings import errors
from trtllm_kit.plan.checks.capacity import MEMORY_RULE, binding_term
from trtllm_kit.plan.memory import Sizing, memory_plan
from trtllm_kit.plan.plan import MemoryPlan, Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.plan.settle import settle, sizing_of, split_of
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.tune.candidates import Shape, shape_changes
from trtllm_kit.tune.question import Question
from trtllm_kit.units import format_bytes

FEW_TOKENS, MANY_TOKENS = 1024, 9216
FEW_REQUESTS, MANY_REQUESTS = 1, 129
"""Limits at which memory is planned; what lies between and beyond is on the same line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A search's question with what it is asked of."""

    model: ModelSpec
    loaded: LoadedProfile
    machines: Mapping[str, Hardware]
    """By name, the profile's own first."""
    question: Question


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a shape cannot run, or something of a configuration is not good enough."""

    constraint: str
    """A rule's id, or the name of a limit: what the others stopped at can be counted by it."""
    message: str
    compared: str


@dataclass(frozen=True, slots=True)
class Room:
    """What a shape leaves for the KV cache, and what is timed of it."""

    shape: Shape
    subject: Subject
    """One replica under the smallest limits; ``dataclasses.replace`` gives any other."""
    left_bytes: int
    """Memory beside weights and buffers, with limits of one request and no token a step."""
    request_bytes: float
    """What one further request of ``max_batch_size`` takes of it."""
    token_bytes: float
    """What one further token of ``max_num_tokens`` takes of it."""
    cache_share: float
    """Share of what is left that becomes cache, before ``free_gpu_memory_fraction``."""
    token_kv_bytes: int
    sequence_kv_bytes: int
    """Cache of one request of the asked length."""
    longest_kv_bytes: int
    """Cache of one request of ``max_seq_len``."""

    def kv_budget(self, batch: int, step_tokens: int, fraction: float) -> float:
        """Return the bytes of a rank's KV cache under limits; negative when the rest does not fit."""
        left = self.left_bytes - (batch - 1) * self.request_bytes - step_tokens * self.token_bytes
        return left if left < 0 else left * fraction * self.cache_share

    def kv_tokens(self, budget: float, request_tokens: int) -> int:
        """Return the tokens of requests of that length that a replica holds where each rank has that budget."""
        block = self.subject.tokens_per_block
        each = kv_tokens(int(budget), self.token_kv_bytes, self.sequence_kv_bytes, block, request_tokens)
        return each * self.subject.split.data


def room_of(asked: Asked, shape: Shape) -> Room | Refusal:
    """Plan a shape under its smallest limits; return its room, or the first thing that stops it."""
    machine = asked.machines[shape.machine]
    changes = shape_changes(shape, asked.loaded.profile, asked.question) | {
        "parallelism.replicas": 1,
        "limits.max_batch_size": FEW_REQUESTS,
        "limits.max_num_tokens": FEW_TOKENS,
        "scheduler.chunked_prefill": True,
        "load.min_concurrency": 1,
    }
    loaded = with_changes(asked.loaded, changes)
    plan = settle(asked.model, loaded, machine)
    stopped = next((finding for finding in errors(plan.findings) if finding.rule != MEMORY_RULE), None)
    if stopped is not None:
        return Refusal(stopped.rule, stopped.message, stopped.compared)
    if not plan.memory.fits:
        return _too_large(plan)
    sizing = sizing_of(asked.model, loaded, machine, split_of(loaded.profile, shape.tensor))
    return _room(shape, plan, sizing, asked.question)


def _room(shape: Shape, plan: Plan, sizing: Sizing, question: Question) -> Room:
    small = plan.memory
    limits, left = sizing.limits, _left(small)
    wide = replace(sizing, limits=limits.model_copy(update={"max_batch_size": MANY_REQUESTS}))
    deep = replace(sizing, limits=limits.model_copy(update={"max_num_tokens": MANY_TOKENS}))
    request_bytes = (left - _left(memory_plan(wide))) / (MANY_REQUESTS - FEW_REQUESTS)
    token_bytes = (left - _left(memory_plan(deep))) / (MANY_TOKENS - FEW_TOKENS)
    return Room(
        shape=shape,
        subject=_subject(plan, sizing, question),
        left_bytes=round(left + FEW_TOKENS * token_bytes),
        request_bytes=request_bytes,
        token_bytes=token_bytes,
        cache_share=small.kv_budget_bytes / left / sizing.kv_cache.free_gpu_memory_fraction,
        token_kv_bytes=small.kv_bytes_per_token,
        sequence_kv_bytes=small.kv_bytes_per_sequence,
        longest_kv_bytes=small.kv_bytes_longest,
    )


def _left(memory: MemoryPlan) -> int:
    return memory.capacity_bytes - sum(term.bytes for term in memory.terms)


def _subject(plan: Plan, sizing: Sizing, question: Question) -> Subject:
    subject = subject_of(plan, sizing.hardware, sequence_tokens=question.tokens)
    return with_acceptance(subject, question.acceptance)


def with_acceptance(subject: Subject, acceptance: tuple[float, ...]) -> Subject:
    """Return a subject whose drafts are taken with these chances; one without speculation is returned as it is."""
    drafting: Speculation | None = subject.speculation
    if drafting is None or not acceptance:
        return subject
    return replace(subject, speculation=replace(drafting, acceptance=acceptance[: drafting.draft_tokens]))


def _too_large(plan: Plan) -> Refusal:
    """Say what does not fit under the smallest limits, with the largest use of memory."""
    memory = plan.memory
    taken = sum(term.bytes for term in memory.terms)
    if memory.kv_budget_bytes < 0:
        name, size = binding_term(memory)
        return Refusal(
            "memory",
            f"The model does not fit; the largest part is {name} with {format_bytes(size)}.",
            f"{format_bytes(taken)} needed before the KV cache, {format_bytes(memory.capacity_bytes)} on a GPU",
        )
    asked = memory.kv_bytes_per_sequence if not memory.holds_asked else memory.kv_bytes_longest
    what = "request of the asked length" if not memory.holds_asked else f"sequence of {plan.limits.max_seq_len.value:,}"
    return Refusal(
        "kv_cache",
        f"The KV cache does not hold one {what}{' tokens' * memory.holds_asked}.",
        f"{format_bytes(asked)} needed, {format_bytes(memory.kv_budget_bytes)} for the KV cache",
    )
