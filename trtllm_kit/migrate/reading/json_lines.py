"""Says on which line each key of a JSON document stands (pure)."""

from __future__ import annotations

import json
import re

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]', re.DOTALL)


def lines_of(text: str) -> dict[str, int]:
    """Return the line of each dotted key of a document that is known to be JSON; what lies in lists has none."""
    found: dict[str, int] = {}
    path: list[str | None] = []
    """The key of each open bracket; None for one that lies in a list."""
    key, line, before = "", 1, ""
    for match in _PIECES.finditer(text):
        piece = match[0]
        if piece == "\n":
            line += 1
            continue
        if piece in ("{", "["):
            path.append(key if before == ":" else None if path else "")
        elif piece in ("}", "]") and path:
            path.pop()
        elif piece == ":" and before.startswith('"') and None not in path:
            key = str(json.loads(before))
            found.setdefault(".".join([*(one for one in path if one), key]), line)
        before = piece
    return found
