"""What rules over a machine share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trtllm_kit.doctor.facts import Card, Machine
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
Told = tuple[Severity, str, str, str]
"""Severity, message, what was compared, suggestion."""


@dataclass(frozen=True)
class Rule:
    """One rule, as the reference lists it."""

    name: str
    title: str
    judge: Callable[[Machine, Wanted], Iterable[Told]]

    def findings(self, machine: Machine, wanted: Wanted) -> list[Finding]:
        """Return what the rule finds."""
        return [
            Finding(rule=self.name, severity=severity, message=message, compared=compared, suggestion=suggestion)
            for severity, message, compared, suggestion in self.judge(machine, wanted)
        ]


def names(cards: Iterable[Card]) -> str:
    """Name cards by number: ``GPU 0, 3``."""
    return "GPU " + ", ".join(str(card.index) for card in cards)


def each(cards: Sequence[Card], values: Callable[[Card], object]) -> str:
    """Say a value of every card: ``GPU 0: 700, GPU 1: 600``."""
    return ", ".join(f"GPU {card.index}: {values(card)}" for card in cards)
