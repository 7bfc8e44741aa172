"""The engine that a rehearsal steps: what the plan decided, within the limits of the repository, on a clock.

For a plan of real hardware the clock is that of ``trtllm_kit.estimate``; for the CPU that stands in for hardware
every step lasts ``serve.token_seconds``; and for a runtime that computes its tokens it lasts as long as they take.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PLAN_FILE = "trtkit-plan.json"
ACCEPTANCE = 0.7
"""Chance that a drafted token is taken when all before it were, where nobody measured it."""
_NO_TIME = 1e-7
_CHAIN = 1 << 62


class NoPlan(Exception):
    """A rehearsal needs the plan and trtkit itself; the text says which is missing."""


@dataclass(frozen=True)
class Limits:
    """What the executor accepts at once."""

    max_batch_size: int
    max_num_tokens: int
    """Tokens in one step."""
    max_seq_len: int
    """Prompt plus answer, tokens."""
    chunked_prefill: bool
    """Split prompts over steps; without it a prompt must fit one."""
    tokens_per_block: int
    kv_blocks: int
    max_queue_size: int


@dataclass(frozen=True)
class Even:
    """A clock on which every step takes equally long."""

    step_seconds: float

    def seconds(self, _work: Any) -> float:
        """Return the seconds of any step."""
        return self.step_seconds

    def decode_run(self, _sequences: int, _context: int, steps: int) -> float:
        """Return the seconds of so many steps."""
        return steps * self.step_seconds


def read_plan(repository: Path) -> Any:
    """Return the plan of a repository; raises ``NoPlan``."""
    try:
        from trtllm_kit.plan.plan import Plan
    except ModuleNotFoundError as error:
        raise NoPlan(f"a rehearsal needs trtllm-kit[rehearsal] in the server's Python: {error}") from None
    try:
        return Plan.model_validate_json((repository / PLAN_FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NoPlan(f"{PLAN_FILE} of the repository cannot be read: {error}") from None


def plan_beside(repository: Path) -> Any:
    """Return the plan of a repository; None where it holds none, as one that was made of single files does."""
    return read_plan(repository) if (repository / PLAN_FILE).is_file() else None


def simulated_engine(limits: Limits, step_seconds: float, plan: Any = None) -> Any:
    """Return an idle engine of ``trtllm_kit.estimate`` for a runtime that computes nothing.

    A plan of real hardware gives its clock, its drafts and its rules; else every step takes ``step_seconds``.
    """
    engine = _module("engine")
    if plan is None:
        return engine.Engine(_alone(limits, block_reuse=True), Even(max(_NO_TIME, step_seconds)))
    from trtllm_kit.spec.load import load_hardware

    hardware = load_hardware(plan.hardware)
    subject = replace(
        _module("subject").subject_of(plan, hardware),
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        kv_tokens=limits.kv_blocks * limits.tokens_per_block,
        tokens_per_block=limits.tokens_per_block,
        chunked_prefill=limits.chunked_prefill,
    )
    if subject.speculation is not None and not subject.speculation.acceptance:
        chances = (ACCEPTANCE,) * subject.speculation.draft_tokens
        subject = replace(subject, speculation=replace(subject.speculation, acceptance=chances))
    if hardware.is_rehearsal:
        return engine.Engine(subject, Even(max(_NO_TIME, step_seconds)), seed=0)
    return engine.Engine(subject, _module("step_time").StepClock(subject), seed=0)


def computing_engine(limits: Limits) -> Any:
    """Return an idle engine for a runtime whose tokens take real time: it orders requests, and keeps no prompt."""
    return _module("engine").Engine(_alone(limits, block_reuse=False), Even(_NO_TIME))


def _alone(limits: Limits, *, block_reuse: bool) -> Any:
    """Return a subject of one rank that drafts nothing: no model and no hardware, for its clock asks for neither."""
    from trtllm_kit.plan.parallelism import Split

    return _module("subject").Subject(
        model=None,
        hardware=None,
        formats=None,
        split=Split(),
        release="",
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        kv_tokens=limits.kv_blocks * limits.tokens_per_block,
        tokens_per_block=limits.tokens_per_block,
        chunked_prefill=limits.chunked_prefill,
        block_reuse=block_reuse,
        overlap_scheduler=False,
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"trtllm_kit.estimate.{name}")
    except ModuleNotFoundError as error:
        raise NoPlan(f"a rehearsal needs trtllm-kit in the server's Python: {error}") from None


def request_of(tokens: Sequence[Any], answer: int, tokens_per_block: int) -> Any:
    """Return a request for an engine: its prompt known block by block, so that another that begins alike reuses them.

    ``tokens`` are ids or words; ``answer`` is the most that its answer may have.
    """
    from trtllm_kit.estimate.workload import Request, Segment

    shared, key = [], 0
    for start in range(0, len(tokens) - tokens_per_block + 1, tokens_per_block):
        key = hash((key, *tokens[start : start + tokens_per_block])) % _CHAIN
        shared.append(Segment(key, tokens_per_block))
    return Request(prompt=len(tokens), answer=answer, shared=tuple(shared))
