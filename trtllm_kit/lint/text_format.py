"""Reads protobuf's text format into a tree with lines; what a field means is not its business.

One thing is taken that the format does not know: a bare ``${name}``, which templates leave when they are not filled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NoReturn

ScalarKind = Literal["string", "number", "word", "placeholder"]
MOST_LEVELS = 100
"""Messages within messages, as protobuf's own reader has it."""

_TOKENS = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<placeholder>\$\{[^}\n]*\})
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>[{}<>\[\]:;,./-])
    |(?P<bad>.)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSING = {"{": "}", "<": ">"}


class TextFormatError(ValueError):
    """The text is not protobuf's text format; ``line`` is where that shows."""

    def __init__(self, line: int, said: str) -> None:
        """Carry the line and what is wrong there."""
        super().__init__(f"line {line}: {said}")
        self.line, self.said = line, said


@dataclass(frozen=True)
class Scalar:
    """A value that is no message."""

    kind: ScalarKind
    text: str
    """Unescaped for a string; a number with its sign, otherwise as written."""


@dataclass(frozen=True)
class Message:
    """Fields in the order they stand."""

    fields: list[Field] = field(default_factory=list)

    def all(self, name: str) -> Iterator[Field]:
        """Yield every field of that name."""
        return (one for one in self.fields if one.name == name)

    def message(self, name: str) -> Message:
        """Return the message under a name, merged where it stands twice; empty without one."""
        return Message(
            [inner for one in self.all(name) if isinstance(one.value, Message) for inner in one.value.fields]
        )

    def messages(self, name: str) -> list[Message]:
        """Return each message under a name."""
        return [one.value for one in self.all(name) if isinstance(one.value, Message)]

    def scalars(self, name: str) -> list[str]:
        """Return the texts of the scalars under a name."""
        return [one.value.text for one in self.all(name) if isinstance(one.value, Scalar)]

    def text(self, name: str) -> str:
        """Return the last scalar under a name, empty without one."""
        return next(reversed(self.scalars(name)), "")


@dataclass(frozen=True)
class Field:
    """One name with one value; a list in brackets is as many fields."""

    name: str
    value: Scalar | Message
    line: int


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse_text_format(raw: bytes) -> Message:
    """Return the top message; raises ``TextFormatError`` with the first thing that is wrong."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TextFormatError(line, f"byte 0x{raw[error.start]:02x} is not UTF-8") from None
    reader = _Reader(_tokens(text))
    message = reader.message("", 0)
    reader.end()
    return message


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKENS.finditer(text):
        kind = str(match.lastgroup)
        if kind == "newline":
            line += 1
        elif kind == "bad":
            letter = match[0]
            said = "a text in quotes does not end on its line" if letter in "\"'" else f"found {letter!r}"
            raise TextFormatError(line, said)
        elif kind != "space":
            yield _Token(kind, match[0], line)
    yield _Token("end", "the end of the file", line)


class _Reader:
    """Walks over the tokens once."""

    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = tokens
        self._next = next(tokens)

    def message(self, closing: str, level: int) -> Message:
        """Read fields up to the closing mark, or to the end of the file for none."""
        if level > MOST_LEVELS:
            raise TextFormatError(self._next.line, f"nested deeper than {MOST_LEVELS} levels")
        found: list[Field] = []
        while not (self._is_mark(closing) if closing else self._next.kind == "end"):
            found += self._field(level)
        if closing:
            self._take()
        return Message(found)

    def end(self) -> None:
        """Refuse what follows the last field."""
        if self._next.kind != "end":
            self._refuse("a field's name")

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _is_mark(self, *marks: str) -> bool:
        return self._next.kind == "mark" and self._next.text in marks

    def _refuse(self, wanted: str) -> NoReturn:
        raise TextFormatError(self._next.line, f"found {self._next.text}, expected {wanted}")

    def _field(self, level: int) -> list[Field]:
        line, name = self._next.line, self._name()
        colon = self._is_mark(":")
        if colon:
            self._take()
        if self._is_mark("["):
            values = self._list(level, scalars=colon)
        elif colon or self._is_mark(*_CLOSING):
            values = [(self._next.line, self._value(level))]
        else:
            self._refuse(f'":" or "{{" after {name}')
        if self._is_mark(",", ";"):
            self._take()
        return [Field(name, value, line if isinstance(value, Message) else at) for at, value in values]

    def _name(self) -> str:
        if self._is_mark("["):  # an extension, or the type of an Any
            self._take()
            parts = []
            while not self._is_mark("]"):
                if self._next.kind not in ("word", "mark", "number") or self._is_mark(*"{}<>;,:["):
                    self._refuse('"]"')
                parts.append(self._take().text)
            self._take()
            return f"[{''.join(parts)}]"
        if self._next.kind != "word":
            self._refuse("a field's name")
        return self._take().text

    def _list(self, level: int, *, scalars: bool) -> list[tuple[int, Scalar | Message]]:
        self._take()
        values: list[tuple[int, Scalar | Message]] = []
        while not self._is_mark("]"):
            if not scalars and not self._is_mark(*_CLOSING):
                self._refuse('"{"')
            values.append((self._next.line, self._value(level)))
            if not self._is_mark(",", "]"):
                self._refuse('"," or "]"')
            if self._is_mark(","):
                self._take()
                if self._is_mark("]"):
                    self._refuse("a value after the comma")
        self._take()
        return values

    def _value(self, level: int) -> Scalar | Message:
        if self._is_mark(*_CLOSING):
            return self.message(_CLOSING[self._take().text], level + 1)
        token, sign = self._next, ""
        if self._is_mark("-"):
            self._take()
            token, sign = self._next, "-"
            if token.kind not in ("number", "word"):
                self._refuse("a number")
        if token.kind == "string":
            return Scalar("string", self._strings())
        if token.kind not in ("number", "word", "placeholder"):
            self._refuse("a value")
        self._take()
        kind: ScalarKind = "number" if token.kind == "number" else "word" if token.kind == "word" else "placeholder"
        return Scalar(kind, sign + token.text)

    def _strings(self) -> str:
        """Return texts in quotes that follow each other, as one."""
        parts = b""
        line = self._next.line
        while self._next.kind == "string":
            parts += _ESCAPE.sub(_unescaped, self._take().text[1:-1].encode())
        try:
            return parts.decode("utf-8")
        except UnicodeDecodeError:
            raise TextFormatError(line, "a text with escapes that are no UTF-8") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, short, four, eight, letter = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if short is not None:
        return bytes([int(short, 16)])
    if four is not None or eight is not None:
        number = int(four or eight, 16)
        return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else b"\xff"
    return _LETTERS.get(letter, letter)
