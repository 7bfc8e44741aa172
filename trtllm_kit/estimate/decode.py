"""Steps in which every request generates: a base, and straight lines over the cached tokens that end at windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds that grow with the tokens which a sequence has cached, up to a window."""

    slope: float
    """Seconds for each token that every sequence of the batch has cached."""
    window: float
    """Tokens beyond which it stays as it is; infinite without a window."""

    def at(self, mean: float) -> float:
        """Return the seconds at that many cached tokens a sequence."""
        return self.slope * (mean if mean < self.window else self.window)

    def total(self, mean: float, steps: int) -> float:
        """Return the sum over consecutive steps, in each of which every sequence has one token more."""
        growing = steps if self.window == float("inf") else int(min(steps, max(0, -(-(self.window - mean) // 1))))
        rising = growing * mean + growing * (growing - 1) / 2
        flat = (steps - growing) * self.window if growing < steps else 0.0
        return self.slope * (rising + flat)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """The seconds of generation steps of one batch size."""

    sequences: int
    base: float
    """Seconds of the GPUs without any cached token."""
    lines: tuple[Line, ...]
    host: float
    """Seconds of the host, beside the GPUs."""
    exposed: float
    """Seconds that nothing hides."""

    def busy(self, mean: float) -> float:
        """Return the seconds of the GPUs at that many cached tokens a sequence."""
        total = self.base
        for line in self.lines:
            total += line.slope * (mean if mean < line.window else line.window)
        return total

    def seconds(self, context: float) -> float:
        """Return the seconds of a step at that many cached tokens of all sequences together."""
        busy = self.busy(context / self.sequences)
        return (busy if busy > self.host else self.host) + self.exposed

    def run(self, context: float, steps: int) -> float:
        """Return the seconds of consecutive steps; in the first, the sequences have that many tokens together."""
        mean = context / self.sequences
        hidden = self._below_host(mean, steps)
        busy = (steps - hidden) * self.base
        busy += sum(line.total(mean + hidden, steps - hidden) for line in self.lines)
        return hidden * self.host + busy + steps * self.exposed

    def _below_host(self, mean: float, steps: int) -> int:
        """Return how many of the steps take the host longer than the GPUs: the first ones, as steps get longer."""
        if self.busy(mean) >= self.host:
            return 0
        low, high = 0, steps  # busy at low is below the host's, at high (if it is a step) it is not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.busy(mean + middle) < self.host else (low, middle)
        return high
