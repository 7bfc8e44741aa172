"""Carrying answers: what becomes of a client that leaves early."""

from __future__ import annotations

from ask import CANCELLED, Ask, Refused
from courier import Exchange
from runtime import Felt, Finish


class Ticket:
    """Notes that it was cancelled."""

    cancelled = False

    def cancel(self) -> None:
        """Note it."""
        self.cancelled = True


def test_a_client_that_left_while_its_request_was_handed_over_costs_no_slot() -> None:
    """The runtime's handle comes after the end is known, and is cancelled at once; otherwise it is kept."""
    gone, here = (Exchange(None, Ask(prompt="p"), "", None) for _ in range(2))
    gone.end = Refused("cancelled by the client", CANCELLED)
    late, kept = Ticket(), Ticket()

    gone.runs_as(late)
    here.runs_as(kept)

    assert (True, False) == (late.cancelled, kept.cancelled)
    assert here.ticket is kept


def test_only_a_streams_client_feels_a_first_token() -> None:
    """First text from the request on, later tokens from the first text on; a whole answer has neither."""
    stream, whole = (
        Exchange(None, Ask(prompt="p", streaming=streams), "", None, opened=10.0) for streams in (True, False)
    )
    for one in (stream, whole):
        one.first, one.ended = 10.5, 12.5

    assert Felt(0.5, 0.25) == stream.felt(Finish(reason="stop", output_tokens=9))
    assert Felt(0.5, None) == stream.felt(Finish(reason="stop", output_tokens=1))
    assert whole.felt(Finish(reason="stop", output_tokens=9)) is None
    stream.first = None
    assert stream.felt(Finish(reason="stop", output_tokens=9)) is None
