"""One change on the way to another release: what a setting was, what it becomes, and how much of it survives (pure)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from trtllm_kit.light import dataclass
from trtllm_kit.upstream.facts import Certainty


class How(StrEnum):
    """How much of a setting survives."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    LOST = "lost"


@dataclass(frozen=True)
class Row:
    """One change of a document, or one thing that means something else though it stays."""

    key: str
    """Dotted key in the document that was given; that of the new one for what was not said before."""
    before: Any
    """Its value; ``UNSAID`` where the document did not say it."""
    to: str
    """Dotted key in the new document; empty for what left it."""
    after: Any
    how: How
    why: str
    certainty: Certainty = "read"
    line: int = 0
    """On which the key stands; 0 where it does not."""

    @property
    def changes(self) -> bool:
        """Whether the text of the document is another one."""
        if self.before == self.after == UNSAID:
            return False
        return self.key != self.to or self.before != self.after or type(self.before) is not type(self.after)


UNSAID = "(not said)"
