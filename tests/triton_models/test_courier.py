"""Carrying answers: what becomes of a client that leaves early."""

from __future__ import annotations

from ask import CANCELLED, Ask, Refused
from courier import Exchange


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
