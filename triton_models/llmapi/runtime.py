"""The words the Triton model and its runtimes share: what a runtime takes, gives back and reports.

A runtime turns an ``Ask`` into text. ``model.py`` picks one of the four by the parameter ``runtime``; everything
else (tensors, streaming, cancellation, metrics) is the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ask import Ask, Refused


@dataclass
class Performance:
    """What one request cost. Times are nanoseconds of a steady clock: only differences mean anything."""

    arrival_ns: int = 0
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    kv_total_blocks: int = 0
    kv_new_blocks: int = 0
    kv_reused_blocks: int = 0
    kv_missed_blocks: int = 0
    kv_hit_rate: float = 0.0
    acceptance_rate: float = 0.0
    accepted_draft_tokens: int = 0
    draft_tokens: int = 0


@dataclass(frozen=True)
class Finish:
    """How an answer ended."""

    reason: str
    """``stop`` (end token or stop text), ``length``, or what TensorRT-LLM says."""
    stop_reason: str = ""
    """The stop text that ended it; empty when none did."""
    text: str = ""
    """The last piece of the answer."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cumulative_logprob: float = 0.0
    performance: Performance = field(default_factory=Performance)


@dataclass(frozen=True)
class Felt:
    """What the client of a stream feels of it, measured where pieces leave the runtime, seconds."""

    first_token: float
    """From the request to the first piece of text."""
    each_token: float | None
    """From the first piece to the end, over the tokens after the first; None of one token."""


class Sink(Protocol):
    """Where a runtime puts one answer; safe to call from any thread."""

    def piece(self, text: str) -> None:
        """Take the next piece of the answer."""

    def finish(self, finish: Finish) -> None:
        """Take the end of the answer; nothing may follow."""

    def fail(self, refused: Refused) -> None:
        """Take the reason why there is no (whole) answer; nothing may follow."""


class Ticket(Protocol):
    """A running request, as the runtime knows it."""

    def cancel(self) -> None:
        """Stop generating and free what the request holds; safe to call at any time and more than once."""


@dataclass(frozen=True)
class Statistics:
    """The executor at one moment. Counts, tokens, blocks and bytes; field names follow the metric labels."""

    active: int = 0
    """Requests the executor holds."""
    max_active: int = 0
    scheduled: int = 0
    """Requests in the last step."""
    context: int = 0
    """Those of them that were reading their prompt."""
    queued: int = 0
    """Requests not admitted yet."""
    kv_max_blocks: int = 0
    kv_free_blocks: int = 0
    kv_used_blocks: int = 0
    tokens_per_block: int = 0
    kv_reused_blocks: int = 0
    context_tokens: int = 0
    """Prompt tokens in the last step."""
    generation_requests: int = 0
    micro_batch_id: int = 0
    paused: int = 0
    iteration: int = 0
    timestamp_us: int = 0
    """Time of the last step, microseconds since 1970."""
    cpu_bytes: int = 0
    gpu_bytes: int = 0
    pinned_bytes: int = 0
    drafted_tokens: int = 0
    """Tokens drafted since the start."""
    accepted_tokens: int = 0
    """Those of them that were kept."""

    @property
    def waiting(self) -> int:
        """Active requests that had no part in the last step: active minus scheduled."""
        return max(0, self.active - self.scheduled)

    @property
    def kv_fraction(self) -> float:
        """Used over all blocks, 0 to 1; 0 when there is no pool."""
        return self.kv_used_blocks / self.kv_max_blocks if self.kv_max_blocks else 0.0


class Runtime(Protocol):
    """What generates tokens."""

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer; raises ``Refused`` when it cannot be given."""

    def statistics(self) -> Statistics | None:
        """Report the executor's state now; None when it has ended and nothing is known any more."""

    def close(self) -> None:
        """Stop; requests that still run are failed."""
