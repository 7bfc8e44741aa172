"""Numbers as a line of small bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=+*#@"
GAP = " "


def sparkline(
    values: Sequence[float | None], low: float | None = None, high: float | None = None, bars: str = BARS
) -> str:
    """Draw values between ``low`` and ``high``, by default their own extremes; what is not known is a gap."""
    known = [value for value in values if value is not None]
    bottom = min(known, default=0.0) if low is None else low
    top = max(known, default=0.0) if high is None else high
    return "".join(GAP if value is None else bars[_step(value, bottom, top, len(bars))] for value in values)


def _step(value: float, bottom: float, top: float, steps: int) -> int:
    if not top > bottom:
        return 0
    return min(steps - 1, max(0, int((value - bottom) / (top - bottom) * steps)))
