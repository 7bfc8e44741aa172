"""Fitted constants written into ``spec/ceilings.yaml``, line by line, so that its remarks stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Bounds = Mapping[str, Sequence[float]]
"""By the name of a constant: its value before the data, the least and the most it may become."""


class Fitted(Protocol):
    """What came out of a fit, by place (an architecture or a runtime) and name."""

    @property
    def values(self) -> Mapping[tuple[str, str], float]:
        """The constants."""
        ...

    @property
    def spread(self) -> Mapping[tuple[str, str], float]:
        """Two standard errors of each."""
        ...


def rewritten(text: str, fitted: Fitted, bounds: Bounds) -> str:
    """Return ``ceilings.yaml`` with fitted values and bounds in place of those it had, within ``bounds`` by name."""
    place, lines = "", []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("- architecture:", "- backend:")):
            place = stripped.split(":")[1].strip()
        elif stripped.startswith("since:"):
            place += f" {_release(stripped, 'first')}"
        elif stripped.startswith("until:"):
            place += f" to {_release(stripped, 'last')}"
        name = stripped.split(":")[0]
        lines.append(_line(line, fitted, (place, name), bounds[name]) if (place, name) in fitted.values else line)
    return "\n".join(lines) + "\n"


def _release(line: str, absent: str) -> str:
    stated = line.split(":", 1)[1].strip()
    return absent if stated == "null" else stated


def _line(line: str, fitted: Fitted, key: tuple[str, str], bounds: Sequence[float]) -> str:
    _, least, most = bounds
    value, spread = fitted.values[key], fitted.spread[key]
    low, high = max(least, value - spread), min(most, value + spread)
    source = line.split("source:")[1].strip(" }")
    numbers = ", ".join(f"{title}: {number(one)}" for title, one in (("value", value), ("low", low), ("high", high)))
    return f"      {key[1]}: {{{numbers}, how: fitted, source: {source}}}"


def number(value: float) -> str:
    """Spell a number as YAML 1.1 reads one: with a point, and a sign in the exponent."""
    mantissa, _, exponent = f"{value:.3g}".partition("e")
    mantissa += "" if "." in mantissa else ".0"
    return f"{mantissa}e{int(exponent):+d}" if exponent else mantissa
