"""The longest wait between two pieces of an answer, for many answers at once."""

from __future__ import annotations

from bisect import bisect_left


class Longest:
    """The longest gap since any moment, while gaps are added."""

    def __init__(self) -> None:
        """Begin without a gap."""
        self.count = 0
        self._places: list[int] = []
        self._gaps: list[float] = []

    def add(self, gap: float) -> None:
        """Add the next gap."""
        while self._gaps and self._gaps[-1] <= gap:
            self._gaps.pop()
            self._places.pop()
        self._gaps.append(gap)
        self._places.append(self.count)
        self.count += 1

    def since(self, count: int) -> float:
        """Return the longest of the gaps added since there were ``count`` of them; 0 without any."""
        place = bisect_left(self._places, count)
        return self._gaps[place] if place < len(self._gaps) else 0.0
