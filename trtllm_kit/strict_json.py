"""JSON from files of others: a document with one meaning, or a ``ValueError`` whose text says what is wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

MOST_LEVELS = 64
_BYTE_ORDER = b"\xef\xbb\xbf"
"""What some editors begin a file with."""
_SHOWN = 60
_SURROGATE = "[\ud800-\udfff]"


def parse_json(raw: bytes, most_values: int | None = None) -> Any:
    """Return the document in UTF-8 bytes.

    Raises ``ValueError`` for what is not JSON, for a key that stands twice in one object, for text that no file can
    hold (half of a surrogate pair), and for more than 64 levels or ``most_values`` keys and values.
    """
    try:
        document = json.loads(raw.removeprefix(_BYTE_ORDER).decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"nested deeper than {MOST_LEVELS} levels") from None
    _check(document, most_values)
    return document


def _check(document: Any, most_values: int | None) -> None:
    """Walk level by level, since a walk into the depth could run out of stack."""
    level, count = [document], 0
    for _ in range(MOST_LEVELS):
        count += len(level)
        if most_values is not None and count > most_values:
            raise ValueError(f"more than {most_values} keys and values")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii() and re.search(_SURROGATE, value):
                raise ValueError(f"the text {_shown(value)} holds half of a surrogate pair, which is no character")
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {MOST_LEVELS} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {_shown(twice)} occurs twice in one object")
    return found


def _shown(text: str) -> str:
    """Spell a text in ASCII, cut to a readable length."""
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
