"""What a lint says: findings, each with the file and line that it is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trtllm_kit.findings import Finding, Severity

Places = Mapping[str, int]
"""Dotted key -> line on which it stands."""
_WORD = re.compile(r"[\w.\-$]+")


class Located(NamedTuple):
    """A finding and where what it is about stands."""

    finding: Finding
    file: str
    """Relative to what was given; empty for the whole of it."""
    line: int | None = None

    @property
    def place(self) -> str:
        """Spell it as editors jump to it; empty for the whole of what was given."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def document(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        return self.finding.model_dump(mode="json") | {"file": self.file, "line": self.line}


@dataclass(frozen=True)
class Read:
    """What was found under a path, and what the rules say of it."""

    kind: str
    """What it is, in words."""
    release: str
    release_from: str
    """Who named the release."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was read of it, to show that the right thing was looked at."""
    findings: tuple[Located, ...] = ()

    def severities(self) -> set[Severity]:
        """Return which severities there are."""
        return {one.finding.severity for one in self.findings}


def located(found: Iterable[Finding], file: str, places: Places | None = None) -> Iterator[Located]:
    """Give each finding its file, and the line of the first key of the file that it names."""
    named = _by_last_part(places or {}) | dict(places or {})
    for finding in found:
        yield Located(finding, file, _line(finding, named))


def in_order(found: Iterable[Located]) -> tuple[Located, ...]:
    """Return findings as they are shown: errors first, otherwise as they came."""
    order = list(Severity)
    return tuple(sorted(found, key=lambda one: order.index(one.finding.severity)))


def _line(finding: Finding, named: Places) -> int | None:
    """Return the line of a key that the finding names: one that is no ordinary word first, else one it compared."""
    texts = (finding.compared, finding.message, finding.suggestion)
    words = [[word.strip(".") for word in _WORD.findall(text)] for text in texts]
    keys = [word for text in words for word in text if "_" in word or "." in word] + words[0] + words[1]
    return next((named[word] for word in keys if word in named), None)


def _by_last_part(places: Places) -> dict[str, int]:
    """Return the lines of dotted keys by their last part, where no two share it."""
    parts = Counter(key.rpartition(".")[2] for key in places)
    return {part: line for key, line in places.items() if parts[part := key.rpartition(".")[2]] == 1}
