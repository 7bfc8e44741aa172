"""Base units inside, unit names outside: bytes, seconds and ratios, parsed once and printed once."""

from __future__ import annotations

import math
import re
from decimal import Decimal

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

_BYTE_UNITS = {
    "B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": TB, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": TIB,
}  # fmt: skip
_SECOND_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ%]*)\s*")


def parse_bytes(text: str | float) -> int:
    """Read ``"4 MiB"``, ``"80GB"`` or a plain number of bytes; raises ``ValueError`` on anything else."""
    number, unit = _split(text)
    factor = _BYTE_UNITS.get(unit.upper() or "B")
    if factor is None:
        raise ValueError(f"unknown byte unit {unit!r}; use one of {', '.join(_BYTE_UNITS)}")
    return round(number * factor)


def parse_seconds(text: str | float) -> float:
    """Read ``"250ms"``, ``"2 min"`` or a plain number of seconds; raises ``ValueError`` on anything else."""
    number, unit = _split(text)
    factor = _SECOND_UNITS.get(unit or "s")
    if factor is None:
        raise ValueError(f"unknown time unit {unit!r}; use one of {', '.join(_SECOND_UNITS)}")
    return number * factor


def parse_share(text: str | float) -> float:
    """Read ``"0.5%"`` or a plain number as a share of one; raises ``ValueError`` on anything else."""
    number, unit = _split(text)
    if unit not in ("", "%"):
        raise ValueError(f"unknown unit {unit!r} of a share; use % or none")
    return float(Decimal(repr(number)) / 100) if unit else number  # 99.9 % is what is written, 0.999


def format_bytes(count: float) -> str:
    """Print bytes with a binary unit and two decimals, e.g. ``"47.31 GiB"``."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f} B"


def format_seconds(seconds: float) -> str:
    """Print a duration with the unit that keeps it short, e.g. ``"472 ms"``, ``"1.25 s"``, ``"3 min 20 s"``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60.0:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_count(count: float) -> str:
    """Print a count with a decimal suffix, e.g. ``"12.68B"``, ``"1.35M"``, ``"980"``."""
    for suffix, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f}{suffix}"
    return f"{count:.0f}"


def counted(count: int, noun: str) -> str:
    """Print a count with its noun, e.g. ``"1 file"``, ``"6 files"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _split(text: str | float) -> tuple[float, str]:
    """Split a quantity into its finite, non-negative number and its unit."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{text!r} is not a quantity")
    if isinstance(text, int | float):
        number, unit = float(text), ""
    else:
        match = _QUANTITY.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a number with a unit")
        number, unit = float(match[1]), match[2]
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{text!r} is not a finite, non-negative quantity")
    return number, unit
