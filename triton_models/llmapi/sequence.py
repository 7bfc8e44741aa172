"""One request whose tokens a runtime makes: what the runtime provides, and its turn in the pacer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ask import Ask, Refused
from faults import Faults
from pacer import Entry, Pacer
from runtime import Finish, Sink
from text import StopTexts
from timing import Limits, request_of


@dataclass(frozen=True)
class Token:
    """One generated token."""

    text: str
    """The text that is certain now; empty within a character."""
    logprob: float = 0.0
    last: bool = False
    """Whether the model ended its answer with this token, which is not part of it."""


class Sequence(Protocol):
    """One request as the generating side sees it."""

    prompt: tuple[int | str, ...]
    """Its tokens, or the words that stand for them."""

    def write(self) -> Token:
        """Generate the next token; the first time the prompt is read before it."""

    def rest(self) -> str:
        """Return text still held back at the end of the answer."""


def begin(pacer: Pacer, limits: Limits, sequence: Sequence, ask: Ask, sink: Sink, faults: Faults) -> Entry:
    """Queue a request; raises ``Refused`` when it can never run or the queue is full."""
    require_room(limits, len(sequence.prompt), ask.max_tokens)
    turn = TextTurn(sequence, ask, sink, faults)
    turn.entry = pacer.submit(request_of(sequence.prompt, ask.max_tokens, limits.tokens_per_block), turn)
    return turn.entry


def require_room(limits: Limits, prompt: int, most: int) -> None:
    """Raise ``Refused`` for a request that no step could ever hold, in the words of the client's tensors."""
    total = prompt + most
    blocks = -(-total // limits.tokens_per_block)
    if prompt < 1:
        raise Refused("text_input has no tokens")
    if total > limits.max_seq_len:
        raise Refused(
            f"prompt of {prompt} tokens plus sampling_param_max_tokens {most} is {total}, "
            f"above max_seq_len {limits.max_seq_len}"
        )
    if not limits.chunked_prefill and prompt > limits.max_num_tokens:
        raise Refused(f"prompt of {prompt} tokens is above max_num_tokens {limits.max_num_tokens}")
    if blocks > limits.kv_blocks:
        raise Refused(f"{total} tokens need {blocks} KV blocks, the pool has {limits.kv_blocks}")


class TextTurn:
    """One request in the pacer: tokens become text, up to the end token, a stop text or the most that was asked for."""

    entry: Entry

    def __init__(self, sequence: Sequence, ask: Ask, sink: Sink, faults: Faults) -> None:
        """Begin before the first token."""
        self.sequence, self._ask, self._sink, self._faults = sequence, ask, sink, faults
        self._stops = StopTexts(ask.stop)
        self._piece = ""
        """Text of the last step, which goes out with the end where it is the last."""
        self._written = 0
        self._logprob = 0.0
        self._ended = False

    def tokens(self, count: int) -> bool:
        """Generate so many more tokens and give out their text; whether the answer ended with them."""
        pieces = []
        for _ in range(count):
            token = self.sequence.write()
            self._logprob += token.logprob
            self._written += 0 if token.last else 1
            self._ended = token.last
            pieces.append(self._stops.push(token.text))
            if self._over:
                break
        self._faults.wrote(len(pieces))
        self._piece = "".join(pieces)
        if self._over:
            return True
        if self._piece:
            self._sink.piece(self._piece)
        return False

    def end(self) -> None:
        """Give out the last text with the end."""
        rest = self._stops.push(self.sequence.rest()) + self._stops.flush()
        self._sink.finish(
            Finish(
                reason="stop" if self._ended or self._stops.hit is not None else "length",
                stop_reason=self._stops.hit or "",
                text=self._piece + rest,
                prompt_tokens=len(self.sequence.prompt),
                output_tokens=self._written,
                cumulative_logprob=self._logprob,
                performance=self.entry.performance,
            )
        )

    def fail(self, refused: Refused) -> None:
        """Give out the reason why there is no whole answer."""
        self._sink.fail(refused)

    @property
    def _over(self) -> bool:
        return self._ended or self._stops.hit is not None or self._written == self._ask.max_tokens
