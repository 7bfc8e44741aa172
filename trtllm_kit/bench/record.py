"""One request as the client saw it. Times are seconds of one monotonic clock, from the start of the run.

What the latencies mean is defined once, in ``estimate.outcome``: a record becomes a ``Served`` of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import ceil

from trtllm_kit.estimate.outcome import Served


class Failure(StrEnum):
    """Why a request has no whole answer."""

    REFUSED = "refused"
    """Nobody listened, or the connection could not be made."""
    STATUS = "status"
    """An answer with another status than 200, e.g. 503."""
    ERROR = "error"
    """A stream that began well and then told of an error."""
    BROKEN = "broken"
    """The connection ended before the answer did."""
    STALLED = "stalled"
    """Nothing came for as long as the client waits."""
    MALFORMED = "malformed"
    """What came is not what the interface says."""
    EMPTY = "empty"
    """The answer ended well and holds no text."""
    UNFINISHED = "unfinished"
    """It took longer than an answer may take."""
    CUT = "cut"
    """The run was interrupted: no fault of the server, and in no figure."""


class Counted(StrEnum):
    """What the number of an answer's tokens rests on, the surest first."""

    SERVER = "server"
    """The server's own count."""
    TOKENIZER = "tokenizer"
    """The model's tokenizer, run over the text."""
    LIMIT = "limit"
    """It ended because it was as long as was asked for."""
    PIECES = "pieces"
    """Pieces of the stream: fewer than tokens where several travel together."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request and its answer."""

    number: int
    intended: float
    """When it was to be sent: latencies count from here, so that a client or server that is late hides nothing."""
    sent: float
    """When its last byte was handed to the system."""
    stamps: tuple[float, ...]
    """When each piece of the answer with text in it was there."""
    ended: float
    """When the answer was complete, or the failure was seen."""
    prompt: int
    answer: int
    """Tokens."""
    counted: Counted
    failure: Failure | None = None
    why: str = ""
    """What failed, in words."""
    warm: bool = False
    """It belongs to the warm-up, and no figure counts it."""

    @property
    def served(self) -> Served:
        """What latencies are computed from; only of a request with text in its answer.

        A client does not see when the engine took the request in, or what was cached: those fields say nothing.
        """
        return Served(
            number=self.number,
            arrival=self.intended,
            scheduled=self.intended,
            first=self.stamps[0],
            last=self.stamps[-1],
            prompt=self.prompt,
            answer=self.answer,
            reused=0,
            pauses=0,
            longest_gap=max(self.gaps(), default=0.0),
        )

    def gaps(self) -> list[float]:
        """Return the seconds between pieces, in order."""
        return [later - earlier for earlier, later in pairwise(self.stamps)]

    def stamp_of(self, token: int) -> float | None:
        """Return when a token (from 1) was there; None for an answer that is shorter.

        Where pieces hold several tokens each is taken to hold as many.
        """
        if not self.stamps or self.answer < token:
            return None
        return self.stamps[max(ceil(token * len(self.stamps) / self.answer), 1) - 1]
