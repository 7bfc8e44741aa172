"""Which comments of a YAML text are not in another one (pure)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARK = re.compile(r"(?:^|(?<=\s))#[^\r\n]*", re.MULTILINE)


def lost_comments(before: str, after: str) -> list[int]:
    """Return the lines of the comments that ``before`` has and ``after`` has not, wherever they stand there."""
    left = Counter(text for _, text in _comments(after))
    lost = []
    for line, text in _comments(before):
        if left[text]:
            left[text] -= 1
        else:
            lost.append(line)
    return lost


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments with their lines; what stands in a value is none."""
    spans = _values(text)
    begins = [begin for begin, _ in spans]
    for found in _MARK.finditer(text):
        at = bisect_right(begins, found.start()) - 1
        if at < 0 or found.start() >= spans[at][1]:
            yield text.count("\n", 0, found.start()) + 1, found[0].strip()


def _values(text: str) -> list[tuple[int, int]]:
    """Return the places of all values, from their first letter to behind the last; none in a text that is no YAML."""
    try:
        tokens = list(yaml.scan(text, Loader=_LOADER))
    except yaml.YAMLError:
        return []
    return [
        (one.start_mark.index, one.end_mark.index)
        for one in tokens
        if isinstance(one, yaml.ScalarToken) and one.end_mark.index > one.start_mark.index
    ]
