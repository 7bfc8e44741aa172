"""Values of settings, from the spelling of their reader to that of a deploy profile (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from trtllm_kit.units import parse_bytes
from trtllm_kit.upstream.engine_settings import Takes, plain_value

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def value_as(takes: Takes, value: object) -> Any:
    """Return a setting's value in a profile's spelling; raises ``ValueError`` saying what was wanted.

    Whole numbers also come as texts, with separators as YAML 1.1 and Python have them; sizes are bytes as Kubernetes
    or Docker spell them.
    """
    return _READERS[takes](value) if takes else value


def _whole(value: object) -> int:
    text = str(value).strip().replace("_", "")
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,18}(\.0+)?", text):
        raise ValueError("a whole number")
    return int(float(text)) if "." in text else int(text)


def _number(value: object) -> float:
    try:
        found = float(str(value).strip())
    except ValueError:
        raise ValueError("a number") from None
    if isinstance(value, bool) or not math.isfinite(found):
        raise ValueError("a number")
    return found


def _switch(value: object) -> bool:
    text = plain_value(value)
    if text not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text in _TRUE


def _flag(value: object) -> bool:
    """Return false for a word that says no; one that says more than yes, such as a data type, is a yes."""
    return plain_value(value) not in _FALSE | {""}


def _word(value: object) -> str:
    return str(value).strip()


def _words(value: object) -> list[str]:
    found = value if isinstance(value, list | tuple) else str(value).split()
    return [str(one) for one in found]


def _counts(value: object) -> list[int]:
    parts = value if isinstance(value, list | tuple) else [one for one in str(value).split(",") if one.strip()]
    try:
        return [_whole(one) for one in parts]
    except ValueError:
        raise ValueError("whole numbers with commas between") from None


def _cores(value: object) -> int:
    """Return whole CPUs, rounded up, of a number or of Kubernetes' thousandths."""
    text = str(value).strip()
    match = re.fullmatch(r"(\d{1,9})m", text)
    try:
        return max(1, math.ceil(int(match[1]) / 1000 if match else _number(text)))
    except ValueError:
        raise ValueError("a number of CPUs such as 4 or 3500m") from None


def _size(value: object) -> int:
    text = str(value).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i)", text, re.IGNORECASE)
    if match:
        return int(float(match[1]) * _BINARY[match[2].lower()])
    docker = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])b?", text)  # powers of two, in small letters
    if docker:
        return int(float(docker[1]) * _BINARY[f"{docker[2]}i"])
    if re.fullmatch(r"\d+(\.\d+)?[KMGT]", text):  # Kubernetes' powers of ten
        text += "B"
    try:
        return parse_bytes(text)
    except ValueError:
        raise ValueError("a size such as 64Gi") from None


_READERS: dict[str, Callable[[object], Any]] = {
    "whole": _whole,
    "number": _number,
    "switch": _switch,
    "flag": _flag,
    "word": _word,
    "text": _word,
    "words": _words,
    "counts": _counts,
    "size": _size,
    "cores": _cores,
    "seconds": _number,
}
