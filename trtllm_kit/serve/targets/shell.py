"""Shell scripts as data: commands are lists of words, and a word's text can never become anything else.

A word is text, which is quoted where it must be, or is joined of text and expansions that the code names. Nothing
that comes from a profile is ever part of the structure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:-]*")
_WIDTH = 110
_STEP = "  "
_LEFT_SECONDS = 5
"""How long launchers and other ranks may take to end after the server."""


@dataclass(frozen=True, slots=True)
class Var:
    """The value of a variable, as one word; with a default where it may be unset."""

    name: str
    default: str | None = None
    """Letters, digits and ``_./:-``: what stands in the braces of an expansion is not quoted alike by every shell."""

    def __post_init__(self) -> None:
        """Refuse a name that is none, and a default with other signs."""
        _check_name(self.name)
        if self.default is not None and not _PLAIN.fullmatch(self.default):
            raise ValueError(f"{self.default!r} cannot be a default in a script")


@dataclass(frozen=True, slots=True)
class Self:
    """The path of the script, as it was called."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the script was called with: the first argument, or all of them as one word."""

    all: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints, as one word."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """``base + factor x variable``, whole numbers; a variable that is unset counts as 0."""

    base: int
    factor: int
    variable: str

    def __post_init__(self) -> None:
        """Refuse a name that is none."""
        _check_name(self.variable)


Part = str | Var | Self | Arguments | Output | Number
Word = Part | tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One command: a program and its arguments.

    ``last`` replaces the shell by it, so that signals reach it; ``beside`` lets it run while the script goes on.
    """

    words: tuple[Word, ...]
    last: bool = False
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Drained:
    """A command that starts a server under launchers that pass no signal on, or kill at once.

    A signal to end goes to the server itself, found by its command line in the session of the command. What is left
    some seconds after the server has gone is told too. The script ends when the command does, with its exit code.
    """

    words: tuple[Word, ...]
    server: str
    """Regular expression of the server's command line."""


@dataclass(frozen=True, slots=True)
class Lent:
    """The script does nothing but lend its place; told to end, it waits until that program runs here no longer."""

    program: str
    """Regular expression of its name."""


@dataclass(frozen=True, slots=True)
class Set:
    """A variable of the script, or (``export``) of everything it starts."""

    name: str
    value: Word
    export: bool = True

    def __post_init__(self) -> None:
        """Refuse a name that is none."""
        _check_name(self.name)


@dataclass(frozen=True, slots=True)
class Case:
    """One of several lists of commands, by the value of a word; any other value ends the script with an error."""

    of: Word
    branches: tuple[tuple[str, tuple[Line, ...]], ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """A line for people; what cannot be shown stands as an escape."""

    text: str


Line = Run | Drained | Lent | Set | Case | Comment


@dataclass(frozen=True, slots=True)
class Script:
    """One script of ``/bin/sh``."""

    lines: tuple[Line, ...]
    directives: tuple[str, ...] = field(default=())
    """Lines ``#SBATCH`` that stand before the first command; the caller has checked every value in them."""

    def text(self) -> str:
        """Write the script; it stops at the first error and at a variable that is not set."""
        for directive in self.directives:
            if not (directive.isascii() and directive.isprintable()):
                raise ValueError(f"{directive!r} cannot stand in a directive")
        head = ["#!/bin/sh", *(f"#SBATCH {directive}" for directive in self.directives)]
        body = [text for line in self.lines for text in _line(line, "")]
        return "\n".join([*head, "set -eu", *body]) + "\n"


def word(of: Word) -> str:
    """Write one word."""
    parts = of if isinstance(of, tuple) else (of,)
    return "".join(map(_part, parts)) or "''"


def _part(part: Part) -> str:
    if isinstance(part, str):
        return shlex.quote(part) if part else ""
    if isinstance(part, Var):
        return f'"${{{part.name}}}"' if part.default is None else f'"${{{part.name}:-{part.default}}}"'
    if isinstance(part, Self):
        return '"$0"'
    if isinstance(part, Arguments):
        return '"$*"' if part.all else '"$1"'
    if isinstance(part, Output):
        return f'"$({" ".join(map(word, part.words))})"'
    return f'"$(({part.base} + {part.factor} * ${{{part.variable}:-0}}))"'


def _line(line: Line, indent: str) -> Iterator[str]:
    if isinstance(line, Comment):
        shown = line.text if line.text.isascii() and line.text.isprintable() else ascii(line.text)[1:-1]
        yield f"{indent}# {shown}"
    elif isinstance(line, Set):
        yield f"{indent}{line.name}={word(line.value)}"
        if line.export:
            yield f"{indent}export {line.name}"
    elif isinstance(line, Run):
        words = [*(["exec"] if line.last else []), *map(word, line.words), *(["&"] if line.beside else [])]
        yield _command(words, indent)
    elif isinstance(line, Drained):
        yield from _drained(line, indent)
    elif isinstance(line, Lent):
        gone = f"while pgrep -x {shlex.quote(line.program)} >/dev/null; do sleep 1; done; exit 0"
        yield f"{indent}trap {shlex.quote(gone)} TERM INT"
        yield f"{indent}while :; do sleep 3600 & wait; done"
    else:
        yield from _case(line, indent)


def _drained(line: Drained, indent: str) -> Iterator[str]:
    within, server = '-s "$TRTKIT_STARTED"', f"-f -- {shlex.quote(line.server)}"
    gone = f"while pgrep {within} {server} >/dev/null; do sleep 1; done"
    rows = [
        _command(["setsid", *map(word, line.words), "&"], ""),
        "TRTKIT_STARTED=$!",
        "trtkit_end() {",
        f'  pkill -TERM {within} {server} || kill -TERM "$TRTKIT_STARTED"',
        f"  ({gone}; sleep {_LEFT_SECONDS}; pkill -TERM -o {within}) >/dev/null 2>&1 &",
        "}",
        "trap trtkit_end TERM INT",
        "TRTKIT_STATUS=0",
        'while kill -0 "$TRTKIT_STARTED" 2>/dev/null; do',
        "  TRTKIT_STATUS=0",
        '  wait "$TRTKIT_STARTED" || TRTKIT_STATUS=$?',
        "done",
        'exit "$TRTKIT_STATUS"',
    ]
    yield from (f"{indent}{row}" for row in rows)


def _command(words: list[str], indent: str) -> str:
    row, rows = words[0], []
    for text in words[1:]:
        if len(row) + len(text) + 1 > _WIDTH:
            rows.append(row)
            row = text
        else:
            row += f" {text}"
    rows.append(row)
    return f" \\\n{indent}{_STEP}".join([f"{indent}{rows[0]}", *rows[1:]])


def _case(case: Case, indent: str) -> Iterator[str]:
    yield f"{indent}case {word(case.of)} in"
    for value, lines in case.branches:
        yield f"{indent}{_STEP}{shlex.quote(value)})"
        for line in lines:
            yield from _line(line, indent + 2 * _STEP)
        yield f"{indent}{2 * _STEP};;"
    yield f"{indent}{_STEP}*)"
    yield f"{indent}{2 * _STEP}echo {shlex.quote('not one of ' + ', '.join(value for value, _ in case.branches))} >&2"
    yield f"{indent}{2 * _STEP}exit 2"
    yield f"{indent}{2 * _STEP};;"
    yield f"{indent}esac"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a variable")
