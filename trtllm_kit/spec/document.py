"""A document that somebody wrote: its data, where every key of it stands, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

DataPath = tuple[str | int, ...]


class Place(NamedTuple):
    """Where something stands."""

    file: str
    line: int

    def __str__(self) -> str:
        """Spell it as editors jump to it."""
        return f"{self.file}:{self.line}"


class Problem(NamedTuple):
    """One thing wrong with a document, or with one key of it."""

    place: Place
    text: str
    key: str = ""

    def __str__(self) -> str:
        """Say it in one line: ``file:line: key.path: text``."""
        return ": ".join(part for part in (str(self.place), self.key, self.text) if part)


@dataclass
class Document:
    """The data of one file, or of several merged."""

    label: str
    """Names the file in messages."""
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[DataPath, Place] = field(default_factory=dict)
    """Where the key (or the list item) of each path stands."""
    spelled: dict[DataPath, str] = field(default_factory=dict)
    """How each scalar is written, quotes included."""
    problems: list[Problem] = field(default_factory=list)
    complete: bool = True
    """False when a part could not be read, so that a key missing here may stand there."""

    def note(self, line: int, text: str) -> None:
        """Record a problem with the document as a whole."""
        self.problems.append(Problem(Place(self.label, line), text))


def dotted(path: DataPath) -> str:
    """Spell a path as a dotted key."""
    return ".".join(str(part) for part in path)
