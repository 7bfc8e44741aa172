"""What the engine tells of itself: how it stands, and what its last steps did."""

from __future__ import annotations

from dataclasses import dataclass

from trtllm_kit.estimate.scheduler import Job


@dataclass(frozen=True, slots=True)
class State:
    """The engine between two steps."""

    time: float
    step: int
    active: int
    """Requests with a slot, those reading their prompt among them."""
    reading: int
    generating: int
    queued: int
    paused: int
    """Queued requests that were active before."""
    kv_blocks: int
    """Blocks of all caches."""
    kv_held: int
    """Of them held or reserved by requests."""
    kv_cached: int
    """Of them kept of finished requests for the next."""
    kv_tokens: int
    """Tokens that active requests have cached."""
    tokens_per_block: int


@dataclass(frozen=True, slots=True)
class Run:
    """What ``advance`` did: one step, or several that were alike."""

    begin: float
    end: float
    """Seconds of the engine's clock."""
    steps: int
    first_seconds: float
    last_seconds: float
    """Of the first and the last of the steps; contexts grow in between."""
    sequences: int
    """Requests that generated in each of them."""
    prompts: int
    """Requests of whose prompt the step read a part."""
    prompt_tokens: int
    looked_back: int
    """Pairs of such a token and one of its prompt that was cached before the step."""
    tokens: float
    """Tokens of answers that went out; whole where nothing is drafted."""
    began: tuple[Job, ...]
    """Requests that have their first token, or the first after a pause."""
    ended: tuple[Job, ...]
    paused: int
    state: State
    """With the requests that ended still in it."""

    @property
    def seconds(self) -> float:
        """All steps together."""
        return self.end - self.begin
