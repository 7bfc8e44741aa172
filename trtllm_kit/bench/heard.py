"""What a client hears of one answer while it comes. Pure; the clock's readings are given to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from trtllm_kit.bench.dialects import Part
from trtllm_kit.bench.record import Failure

_CUT = "\ufffd"


@dataclass(slots=True)
class Heard:
    """One answer, from the first byte sent to its end. Times are readings of the client's clock, seconds."""

    sent: float = 0.0
    """When the request was handed to the system; 0 while it was not."""
    latest: float = 0.0
    """When anything was heard last, or the request was sent."""
    ended: float = 0.0
    stamps: list[float] = field(default_factory=list)
    """When each piece with text was there."""
    texts: list[str] = field(default_factory=list)
    finish: str = ""
    said_done: bool = False
    answer_tokens: int | None = None
    prompt_tokens: int | None = None
    """The server's own counts."""
    failure: Failure | None = None
    why: str = ""
    together: int = 0
    """Pieces that came with an earlier one in a single reading of the network."""
    may_repeat: bool = True
    """Whether the interface has servers whose pieces repeat the answer so far."""

    def take(self, part: Part, stamp: float) -> None:
        """Take what one event said."""
        self.latest = stamp
        if part.error:
            self.fail(Failure.ERROR, part.error, stamp)
            return
        if part.text:
            self.together += bool(self.stamps and self.stamps[-1] == stamp)
            self.stamps.append(stamp)
            self.texts.append(part.text)
        self.finish = part.finish or self.finish
        self.said_done = self.said_done or part.done
        self.answer_tokens = part.answer_tokens or self.answer_tokens
        self.prompt_tokens = part.prompt_tokens or self.prompt_tokens

    def fail(self, failure: Failure, why: str, stamp: float) -> None:
        """Take what went wrong; the first failure stands."""
        if self.failure is None:
            self.failure, self.why, self.ended = failure, why[:200], stamp

    def end(self, stamp: float) -> None:
        """Take a good end; an answer without text is a failure all the same."""
        self.ended = stamp
        if not self.texts:
            self.fail(Failure.EMPTY, "the answer ended without text", stamp)

    @property
    def adds(self) -> bool:
        """Whether it shows that a piece is new text; a server of which one answer does repeats itself in none.

        Two pieces show it that begin differently, for the end of a repeated answer may also be cut (stop words).
        """
        return not self.may_repeat or any(not _begin_alike(one, other) for one, other in pairwise(self.texts))

    @property
    def text(self) -> str:
        """The whole answer, as far as it shows by itself whether pieces are new text."""
        return self.said(adds=self.adds)

    def said(self, *, adds: bool) -> str:
        """Return the whole answer of a server whose pieces are new text, or may be all of it so far each time.

        Upstream's llmapi model repeats all of it in every piece: then the last one is it.
        """
        pieces = self.texts
        if not adds and len(pieces) > 1 and len(pieces[0]) < len(pieces[-1]) and _grows(pieces):
            return pieces[-1]
        return "".join(pieces)


def _begin_alike(earlier: str, later: str) -> bool:
    return later.startswith(earlier.rstrip(_CUT)) or earlier.startswith(later.rstrip(_CUT))


def _grows(pieces: list[str]) -> bool:
    """Whether each piece begins with the one before; what stands there for a character that came in part may change."""
    return all(later.startswith(earlier.rstrip(_CUT)) for earlier, later in pairwise(pieces))
