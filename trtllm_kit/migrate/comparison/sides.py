"""What each of two deployments said when it was asked the same. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtllm_kit.bench.lag import Lag
from trtllm_kit.bench.record import Record
from trtllm_kit.light import dataclass
from trtllm_kit.migrate.comparison.difference import Likeness, difference

OWN_WORDS = ("status", "error")
"""Failures that are a server's own refusal, said in an answer."""


@dataclass(frozen=True)
class Said:
    """One answer, or why there is none. An answer that ended at once has no text and is one all the same."""

    text: str = ""
    joined: str | None = None
    """Of a stream: its pieces behind each other, where that is another text; some servers repeat all text in each."""
    failure: str = ""
    """Its kind, as the bench counts them; empty of an answer."""
    why: str = ""
    prompt_tokens: int | None = None
    """As the server or a tokenizer of its own counts them; None where nobody does."""


@dataclass(frozen=True)
class Measured:
    """How long requests took; their tokens are counted once both sides are known."""

    records: tuple[Record, ...]
    lag: Lag
    streams: bool
    """Whether answers came in pieces."""


@dataclass(frozen=True)
class Side:
    """One deployment, asked."""

    name: str
    """``old`` or ``new``."""
    place: str
    api: str
    model: str
    twice: tuple[tuple[Said, Said], ...]
    """The first prompts, asked twice before anything else."""
    whole: tuple[Said, ...]
    """Every prompt, answered in one piece where the interface can."""
    streamed: tuple[Said, ...]
    """Every prompt, answered in pieces; empty where only whole answers were asked for."""
    measured: Measured

    def apart(self) -> list[int]:
        """Return the prompts, from 1, whose stream says something else than their whole answer, read either way."""
        return [
            number
            for number, streamed, whole in self._in_pieces()
            if whole.text not in (streamed.text, streamed.joined)
            and difference(streamed.text, whole.text, "").likeness is Likeness.DIFFERENT
        ]

    def repeating(self) -> list[int]:
        """Return the prompts, from 1, each piece of whose stream held all text up to it."""
        return [
            number
            for number, streamed, whole in self._in_pieces()
            if streamed.joined not in (None, whole.text) and streamed.text == whole.text
        ]

    def _in_pieces(self) -> Iterator[tuple[int, Said, Said]]:
        """Yield number, stream and whole answer of each prompt that has both."""
        for number, (streamed, whole) in enumerate(zip(self.streamed, self.whole, strict=False), 1):
            if not (streamed.failure or whole.failure):
                yield number, streamed, whole

    def answered(self) -> bool:
        """Whether any prompt has an answer."""
        return any(not said.failure for said in self.whole)

    def silent(self) -> bool:
        """Whether there are answers, and none has text."""
        return self.answered() and not any(said.text for said in self.whole)

    def unsteady(self) -> list[int]:
        """Return the prompts, from 0, whose answers were not the same each time."""
        times = zip(self.twice, self.whole, strict=False)
        return [number for number, (pair, third) in enumerate(times) if len(_texts((*pair, third))) > 1]


def _texts(answers: Sequence[Said]) -> set[str]:
    return {said.text for said in answers if not said.failure}
