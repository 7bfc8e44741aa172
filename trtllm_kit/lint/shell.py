"""Reads a shell script as the commands it starts, each with its line; it runs nothing and follows no branch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

_ENDS = frozenset({";", "&&", "||", "|", "&", "(", ")", ";;", "then", "do", "else", "{", "}", "!", "if", "while"})
"""Words after which another command begins."""
_SAYS = frozenset({"echo", "printf", "cat", "grep", "ls", "which", "test", "[", "alias"})
"""Programs whose words are no commands."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_REDIRECTED = re.compile(r"\d?>&\d|&>>?")
"""Redirections with the sign that also sends a command to the background."""
_MOST_LINES = 60
"""Lines that one command may be spread over."""


@dataclass(frozen=True)
class Started:
    """One command as it is written, and what was set before it."""

    words: tuple[str, ...]
    line: int
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    """What the last ``cd`` before it says; None where the script changes to none, or to one that nobody can read."""
    background: bool = False
    """Whether the script goes on while it runs."""


def started(raw: bytes) -> Iterator[Started]:
    """Yield every command of a script in its order; what cannot be taken apart is passed over."""
    variables: dict[str, str] = {}
    folder: str | None = None
    for line, words, end in _commands(raw.decode("utf-8", errors="replace")):
        own, rest = _assignments(words)
        if not rest or rest[0] in ("export", "declare"):
            variables |= own | _assignments(list(rest[1:]))[0]
            continue
        if rest[0] == "cd":
            folder = _changed(folder, rest[1] if len(rest) > 1 else "$HOME")
            continue
        if rest[0] not in _SAYS:
            yield from _inside(Started(rest, line, {**variables, **own}, folder, end == "&"))


def _inside(found: Started) -> Iterator[Started]:
    """Yield a command, or those of the text that a shell is given."""
    words = found.words
    if "-c" in words[:-1] and Path(words[0]).name in ("bash", "sh"):
        text = words[words.index("-c") + 1]
        yield from (
            replace(
                one,
                line=found.line,
                variables={**found.variables, **one.variables},
                folder=one.folder or found.folder,
                background=one.background or found.background,
            )
            for one in started(text.encode())
        )
        return
    yield found


def _commands(text: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield the line that each command begins on, its words, and what ends it."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        words, used = _words(lines[at : at + _MOST_LINES])
        command: list[str] = []
        for word in (*words, ";"):
            if word not in _ENDS:
                command.append(word)
            elif command:
                yield at + 1, command, word
                command = []
        at += used


def _words(lines: list[str]) -> tuple[list[str], int]:
    """Return the words of the first command line and how many lines it takes; none for quotes that never end."""
    text = ""
    for used, line in enumerate(lines, start=1):
        if line.endswith("\\"):
            text += line[:-1] + " "
            continue
        text += line
        try:
            lexer = shlex.shlex(_REDIRECTED.sub(" > ", text), posix=True, punctuation_chars=";&|()")
            lexer.whitespace_split = True
            return list(lexer), used
        except ValueError:
            text += "\n"
    return [], 1


def _assignments(words: list[str] | tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Take the assignments from the front of a command, those of ``env`` too."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0] == "env" or _ASSIGNMENT.fullmatch(rest[0])):
        match = _ASSIGNMENT.fullmatch(rest.pop(0))
        if match is not None:
            found[match[1]] = match[2]
    return found, tuple(rest)


def _changed(folder: str | None, target: str) -> str | None:
    if "$" in target or "`" in target or target.startswith("~") or target == "-":
        return None
    return target if target.startswith("/") or folder is None else f"{folder}/{target}"
