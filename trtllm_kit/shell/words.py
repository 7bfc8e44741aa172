"""Takes shell text apart into words and marks, each with its line; nothing is expanded here (pure)."""

from __future__ import annotations

import re
from typing import Literal

from trtllm_kit.light import dataclass

PartKind = Literal["text", "variable", "substitution", "arithmetic"]
_MARKS = re.compile(r"&&|\|\||;;&?|;&|<<-|<<<|<<|&>>|&>|>>|>&|<&|>\||\|&|[;&|()<>]")
_WORD_ENDS = frozenset(" \t\r\n;&|()<>")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w./-]*>")
"""What guides write for the reader to fill in; a shell would read from a file and write to another."""
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACED = re.compile(r"(#?)([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[[@*]\])?(.*)", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True)
class Part:
    """A piece of a word: text as it is, or something that a shell puts text in the place of."""

    kind: PartKind
    text: str
    """The text, the name of the variable, or what stands inside the brackets."""
    written: str
    """As it stands in the file."""
    quoted: bool = False
    operator: str = ""
    """What follows the name inside of ``${}``: ``:-word``, ``%.*``, ``[@]``."""


@dataclass(frozen=True)
class Word:
    """One word as it is written."""

    parts: tuple[Part, ...]
    line: int
    array: tuple[Word, ...] | None = None
    """The elements of ``name=( ... )``, whose parts are ``name=``."""
    begin: int = -1
    """Place of its first letter in the text; -1 for one that stands in none."""
    end: int = -1
    """Place behind its last letter."""

    @property
    def written(self) -> str:
        """The word as it stands in the file, without its quotes."""
        return "".join(part.written for part in self.parts)

    @property
    def plain(self) -> str:
        """The text of a word without quotes and variables, which a shell can take for a word of its own; else empty."""
        bare = all(part.kind == "text" and not part.quoted for part in self.parts)
        return self.written if bare and self.array is None else ""


@dataclass(frozen=True)
class Mark:
    """An operator of the shell, or the end of a line."""

    text: str
    line: int


@dataclass(frozen=True)
class Here:
    """Text that stands in the script and is handed to a command (``<<EOF``)."""

    text: str
    line: int
    """Line of its first line."""
    expands: bool


@dataclass(frozen=True)
class Broken:
    """A line that cannot be taken apart."""

    line: int
    text: str
    why: str


Token = Word | Mark | Here | Broken


class _NoEnd(ValueError):
    """A quote or bracket does not end; ``args[0]`` names it."""


def tokens(text: str, line: int = 1) -> list[Token]:
    """Return the tokens of a script whose first line has the given number; what is broken is a token too."""
    return _Scanner(text, line).all()


class _Scanner:
    """Walks over the text once; a line that breaks is left whole, with those that continue it."""

    def __init__(self, text: str, line: int) -> None:
        self._text, self._at, self._line = text, 0, line
        self._found: list[Token] = []
        self._pending: list[tuple[int, str, bool, bool]] = []

    def all(self) -> list[Token]:
        while self._at < len(self._text):
            begin, line, count = self._at, self._line, len(self._found)
            try:
                self._one()
            except _NoEnd as error:
                del self._found[count:]
                self._at, self._line = begin, line
                self._leave(str(error))
        self._heres()
        return self._found

    def _leave(self, what: str) -> None:
        """Leave the rest of this line, and the lines that a backslash adds to it."""
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            rest = self._text[self._at : end]
            self._found.append(Broken(self._line, rest.strip(), f"{what} does not end"))
            self._at = end
            if not rest.rstrip().endswith("\\") or self._at >= len(self._text):
                return
            self._step()

    def _step(self, count: int = 1) -> str:
        piece = self._text[self._at : self._at + count]
        self._at += count
        self._line += piece.count("\n")
        return piece

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _one(self) -> None:
        """Read one token, or what stands between two."""
        letter = self._peek()
        if letter == "\n":
            self._found.append(Mark("\n", self._line))
            self._step()
            self._heres()
        elif letter in " \t\r" or self._continued():
            self._step(1 if letter in " \t\r" else len(self._continuation()))
        elif letter == "#":
            end = self._text.find("\n", self._at)
            self._step((len(self._text) if end < 0 else end) - self._at)
        elif self._peek(2) == "((" and not self._is_after_word():
            line, inner = self._line, self._until_arithmetic_ends()
            self._found.append(Mark(f"(({inner}))", line))
        elif not self._is_placeholder() and (match := _MARKS.match(self._text, self._at)):
            self._mark(match[0])
        else:
            self._found.append(self._word())

    def _is_after_word(self) -> bool:
        return bool(self._found) and isinstance(self._found[-1], Word) and self._found[-1].plain not in ("for", "while")

    def _is_placeholder(self) -> bool:
        return self._peek() == "<" and _PLACEHOLDER.match(self._text, self._at) is not None

    def _continuation(self) -> str:
        return next((mark for mark in ("\\\n", "\\\r\n") if self._text.startswith(mark, self._at)), "")

    def _continued(self) -> bool:
        return bool(self._continuation())

    def _mark(self, text: str) -> None:
        line, before = self._line, self._found[-1] if self._found else None
        touching = self._at > 0 and self._text[self._at - 1] not in " \t\n"
        if text[0] in "<>" and touching and isinstance(before, Word) and before.plain.isdigit():
            self._found.pop()  # the number of a file, 2>&1
        self._step(len(text))
        if text not in ("<<", "<<-"):
            self._found.append(Mark(text, line))
            return
        while self._peek() in (" ", "\t"):
            self._step()
        word = self._word()
        quoted = any(part.quoted for part in word.parts)
        self._pending.append((len(self._found), word.written, quoted, text == "<<-"))
        self._found.append(Here("", line, not quoted))

    def _heres(self) -> None:
        """Read the texts that commands of the line before are handed."""
        for place, end, quoted, tabs in self._pending:
            line, lines, ended = self._line, list[str](), False
            while self._at < len(self._text) and not ended:
                stop = self._text.find("\n", self._at)
                one = self._step((len(self._text) if stop < 0 else stop + 1) - self._at).rstrip("\r\n")
                one = one.lstrip("\t") if tabs else one
                ended = one == end
                lines += [] if ended else [one]
            text = "\n".join(lines)
            here: Token = Here(text, line, not quoted)
            self._found[place] = here if ended else Broken(line, text, f"the text up to {end!r} does not end")
        self._pending.clear()

    def _word(self) -> Word:
        line, begin, parts = self._line, self._at, list[Part]()
        while self._at < len(self._text) and (self._peek() not in _WORD_ENDS or self._is_placeholder()):
            if self._continued():
                self._step(len(self._continuation()))
                continue
            parts += self._part()
        word = Word(tuple(parts), line, begin=begin, end=self._at)
        if self._peek() == "(" and _ARRAY.fullmatch(word.plain):
            return Word(word.parts, line, self._array(), begin, self._at)
        return word if parts else Word((Part("text", "", ""),), line, begin=begin, end=self._at)

    def _array(self) -> tuple[Word, ...]:
        self._step()
        found: list[Word] = []
        while self._peek() != ")":
            if self._at >= len(self._text):
                raise _NoEnd("the list that begins here")
            if self._peek() in " \t\r\n" or self._continued():
                self._step()
            elif self._peek() == "#":
                self._step(max(self._text.find("\n", self._at), self._at + 1) - self._at)
            elif self._peek() in _WORD_ENDS:
                raise _NoEnd("the list that begins here")
            else:
                found.append(self._word())
        self._step()
        return tuple(found)

    def _part(self) -> list[Part]:
        letter = self._peek()
        if letter == "'":
            self._step()
            text = self._until("'", "a quote that begins here")
            return [Part("text", text, text, quoted=True)]
        if letter == '"':
            self._step()
            return self._double()
        if letter == "\\":
            self._step()
            text = self._step()
            return [Part("text", text, text, quoted=True)]
        if letter in "$`":
            return [self._dollar(quoted=False)]
        if letter == "<":
            written = self._text[self._at : self._text.index(">", self._at) + 1]
            self._step(len(written))
            return [Part("variable", "", written)]
        begin = self._at
        while self._at < len(self._text) and self._peek() not in _WORD_ENDS and self._peek() not in "'\"\\$`":
            self._step()
        text = self._text[begin : self._at]
        return [Part("text", text, text)]

    def _double(self) -> list[Part]:
        parts, text = list[Part](), ""
        while True:
            letter = self._peek()
            if not letter:
                raise _NoEnd("a quote that begins here")
            if letter in '"$`' and (letter == '"' or text):
                parts.append(Part("text", text, text, quoted=True))
                text = ""
            if letter == '"':
                self._step()
                return parts
            if letter in "$`":
                parts.append(self._dollar(quoted=True))
            elif letter == "\\" and self._peek(2)[1:] in ('"', "$", "`", "\\"):
                text += self._step(2)[1]
            else:  # a line's end behind a backslash stays: a shell that is given the text reads on over it
                text += self._step()

    def _dollar(self, *, quoted: bool) -> Part:
        begin = self._at
        if self._peek() == "`":
            self._step()
            inner = self._until("`", "a ` that begins here")
            return Part("substitution", inner, self._text[begin : self._at], quoted)
        if self._peek(3) == "$((":
            self._step()
            inner = self._until_arithmetic_ends()
            return Part("arithmetic", inner, self._text[begin : self._at], quoted)
        if self._peek(2) == "$(":
            self._step()
            inner = self._balanced("(", ")")
            return Part("substitution", inner, self._text[begin : self._at], quoted)
        if self._peek(2) == "${":
            self._step()
            return self._braced(self._balanced("{", "}"), self._text[begin : self._at], quoted=quoted)
        if self._peek(2) == "$'" and not quoted:
            self._step(2)
            text = re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[0]), self._until("'", "a quote"))
            return Part("text", text, text, quoted=True)
        name = _NAME.match(self._text, self._at + 1)
        self._step(1 + len(name[0]) if name else 1)
        written = self._text[begin : self._at]
        return Part("variable", name[0], written, quoted) if name else Part("text", "$", "$", quoted)

    def _braced(self, inner: str, written: str, *, quoted: bool) -> Part:
        match = _BRACED.fullmatch(inner)
        if match is None or match[1]:
            return Part("variable", "", written, quoted, inner)
        return Part("variable", match[2], written, quoted, (match[3] or "") + match[4])

    def _until(self, end: str, what: str) -> str:
        at = self._text.find(end, self._at)
        if at < 0:
            raise _NoEnd(what)
        return self._step(at + len(end) - self._at)[: -len(end)]

    def _until_arithmetic_ends(self) -> str:
        inner = self._balanced("(", ")")
        return inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner

    def _balanced(self, opening: str, closing: str) -> str:
        """Read from an opening bracket behind its closing one; returns what is between."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            letter = self._step()
            if letter == "\\":
                self._step()
            elif letter in "'\"" and opening == "(":
                self._until(letter, "a quote that begins here")
            elif letter in opening + closing:
                depth += 1 if letter == opening else -1
                if depth == 0:
                    return self._text[begin + 1 : self._at - 1]
        raise _NoEnd(f"a {opening} that begins here")
