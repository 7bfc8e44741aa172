"""Puts into words what a shell would put there, as far as the script itself says it (pure)."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from trtllm_kit.light import dataclass
from trtllm_kit.shell.arithmetic import arithmetic, names_in
from trtllm_kit.shell.words import Part, Word, tokens

_MOST = 4096
"""Words that one word can become."""
_MOST_BRACES = 12
_MOST_WITHIN = 20
"""Brackets within brackets."""
_LONGEST_TRIMMED = 2_000
_MOST_LETTERS = 1 << 16
"""Letters of one value: variables that double themselves grow beyond it."""
_RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\}")
_CHOICE = re.compile(r"\{([^{},]*(?:,[^{},]*)+)\}")
_FALLS_BACK = re.compile(r"(:?)([-=?+])(.*)", re.DOTALL)
_TRIMS = re.compile(r"(##?|%%?)(.*)", re.DOTALL)
FOLDER = "~+"
"""Where a scope holds the folder that the script changed to: as a shell spells it, and no name of a variable."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")


@dataclass(frozen=True)
class Argument:
    """One word that a program is given."""

    text: str
    """What it is given; as it is written where that cannot be read."""
    line: int
    why: str = ""
    """The reason for which it cannot be read; empty where it can."""


Value = tuple[Argument, ...]
"""What a variable holds: one word, or those of a list."""


@dataclass(frozen=True)
class Scope:
    """What is set at one place of a script; the mappings change as the script goes on."""

    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    """Names that the script has asked for."""

    def copy(self) -> Scope:
        """Return one of the same values that changes by itself."""
        return replace(self, values=dict(self.values), exported=set(self.exported))

    def child(self) -> Scope:
        """Return what a program sees that is started here."""
        kept = (*self.exported, FOLDER)
        return Scope({name: value for name, value in self.values.items() if name in kept}, used=self.used)


def expand(word: Word, scope: Scope) -> list[Argument]:
    """Return the words that a shell makes of one."""
    if word.written.count("{") > _MOST_BRACES and any("{" in part.text for part in word.parts if part.kind == "text"):
        return [Argument(word.written, word.line, "it holds more brackets than are read")]
    fields = (one for plain in _braces(word) for one in _fields(plain, scope))
    found = list(itertools.islice(fields, _MOST + 1))
    return (
        found if len(found) <= _MOST else [Argument(word.written, word.line, f"it stands for more than {_MOST} words")]
    )


def value_of(word: Word, scope: Scope) -> Argument:
    """Return what a word is where nothing is split, as behind ``=`` in an assignment."""
    text, why = "", ""
    for part in word.parts:
        piece = _piece(part, scope)
        text += " ".join(one.text for one in piece)
        why = why or next((one.why for one in piece if one.why), "")
    return _bounded(Argument(text, word.line, why))


def assignment(word: Word, scope: Scope) -> tuple[str, Value] | None:
    """Return the variable that a word sets and its value; None for a word that sets none."""
    first = word.parts[0] if word.parts else None
    match = _ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" and not first.quoted else None
    if first is None or match is None:
        return None
    if word.array is not None:
        value: Value = tuple(one for inner in word.array for one in expand(inner, scope))
    else:
        rest = replace(first, text=first.text[match.end() :], written=first.written[match.end() :])
        value = (value_of(Word((rest, *word.parts[1:]), word.line), scope),)
    if match[2]:
        before = scope.values.get(match[1], ())
        value = before + value if word.array is not None else _joined(before, value)
    return match[1], value[:_MOST]


def _joined(before: Value, value: Value) -> Value:
    first, last = (before or (Argument("", value[0].line),))[0], value[0]
    return (_bounded(Argument(first.text + last.text, last.line, first.why or last.why)),)


def _bounded(one: Argument) -> Argument:
    long = len(one.text) > _MOST_LETTERS
    return Argument(one.text[:_MOST_LETTERS], one.line, f"it is longer than {_MOST_LETTERS} letters") if long else one


def _braces(word: Word) -> Iterator[Word]:
    """Yield what ``{0..7}`` and ``{a,b}`` make of a word."""
    for number, part in enumerate(word.parts):
        match = None if part.kind != "text" or part.quoted else _RANGE.search(part.text) or _CHOICE.search(part.text)
        if match is None:
            continue
        options = match[1].split(",") if match.re is _CHOICE else _range(match)
        for option in itertools.islice(options, _MOST + 1):
            text = part.text[: match.start()] + option + part.text[match.end() :]
            inner = replace(part, text=text, written=text)
            yield from _braces(Word((*word.parts[:number], inner, *word.parts[number + 1 :]), word.line))
        return
    yield word


def _range(match: re.Match[str]) -> Iterator[str]:
    first, last = int(match[1]), int(match[2])
    step = abs(int(match[3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return map(str, numbers)


def _fields(word: Word, scope: Scope) -> Iterator[Argument]:
    """Yield the fields of a word: an unquoted variable may be several, or none.

    What is nothing but a variable stands where that is set.
    """
    text, why, line, begun = "", "", 0, False
    own = any(part.kind == "text" and part.text for part in word.parts)
    for part in word.parts:
        pieces = _piece(part, scope)
        if not part.quoted and part.kind != "text":
            pieces = [split for one in pieces for split in _split(one)]
        begun = begun or part.kind == "text" or (part.quoted and part.operator != "[@]" and part.text != "@")
        for number, piece in enumerate(pieces):
            if number:
                yield _bounded(Argument(text, line or word.line, why))
                text, why, line = "", "", 0
            line = line or (piece.line if piece.text and not own else 0)
            text, why, begun = text + piece.text, why or piece.why, True
    if begun:
        yield _bounded(Argument(text, line or word.line, why))


def _split(one: Argument) -> list[Argument]:
    return [one] if one.why else [replace(one, text=text) for text in one.text.split()]


def _piece(part: Part, scope: Scope) -> list[Argument]:
    """Return what stands in the place of one part; a list gives several."""
    if part.kind == "text":
        return [Argument(part.text, 0)]
    if part.kind == "arithmetic":
        number = number_of(part.text, scope)
        return [Argument(part.written, 0, number) if isinstance(number, str) else Argument(str(number), 0)]
    if part.kind == "substitution":
        return _substituted(part, scope)
    return _variable(part, scope)


def number_of(text: str, scope: Scope) -> int | str:
    """Return the number of ``$((text))``, or the reason for which it cannot be read."""
    scope.used.update(names_in(text))
    return arithmetic(text, {name: one[0].why or one[0].text for name, one in scope.values.items() if one})


def _variable(part: Part, scope: Scope) -> list[Argument]:
    name, asked = part.text, part.operator
    if not name or asked.count("{") > _MOST_WITHIN:
        placeholder = part.written.startswith("<")
        why = (
            "a placeholder that nobody filled"
            if placeholder
            else f"{part.written} is no variable that can be read here"
        )
        return [Argument(part.written, 0, why)]
    scope.used.add(name)
    value = scope.values.get(name)
    if asked in ("", "[@]", "[*]"):
        return [Argument(part.written, 0, not_set(name))] if value is None else _held(name, asked, value)
    if match := _FALLS_BACK.fullmatch(asked):
        return _fallen_back(part, match, value, scope)
    if value is not None and (match := _TRIMS.fullmatch(asked)):
        return [_trimmed(value[0], match[1], match[2])] if value else [Argument("", 0)]
    why = not_set(name) if value is None else f"{part.written} changes the text of {name}"
    return [Argument(part.written, 0, why)]


def _held(name: str, asked: str, value: Value) -> list[Argument]:
    """Return what a variable holds: one word, or those of a list where all are asked for."""
    if asked == "[*]":
        return [Argument(" ".join(one.text for one in value), 0, _first_why(value))]
    return list(value) if asked or name in ("@", "*") else list(value[:1])


def _first_why(several: Sequence[Argument]) -> str:
    return next((one.why for one in several if one.why), "")


def not_set(name: str) -> str:
    """Return the reason for which a variable that nothing sets cannot be read."""
    if name.isdigit() or name in ("@", "*", "#"):
        return f"${name} is an argument of the script"
    return f"the variable {name} is not set in this file"


def _fallen_back(part: Part, match: re.Match[str], value: Value | None, scope: Scope) -> list[Argument]:
    """Read ``${X:-word}`` and its like: the word stands where the script sets no X."""
    colon, sign, text = match.groups()
    empty = value is None or (bool(colon) and all(one.text == "" and not one.why for one in value))
    if sign == "+":
        return [Argument("", 0)] if empty else [value_of(_one_word(text), scope)]
    if not empty:
        return list(value or ())[:1]
    if sign == "?":
        return [Argument(part.written, 0, not_set(part.text))]
    found = value_of(_one_word(text), scope)
    if sign == "=":
        scope.values[part.text] = (found,)
    return [found]


def _one_word(text: str) -> Word:
    """Return the text behind ``:-`` as one word with spaces in it."""
    parts: list[Part] = []
    for one in tokens(text):
        if not isinstance(one, Word):
            return Word((Part("variable", "", text),), 0)
        parts += [*([Part("text", " ", " ", quoted=True)] if parts else []), *one.parts]
    return Word(tuple(parts), 0)


def _trimmed(value: Argument, sign: str, pattern: str) -> Argument:
    """Take the shortest or longest piece that a pattern fits from the beginning (#) or end (%) of a value."""
    if value.why or "$" in pattern or len(value.text) > _LONGEST_TRIMMED:
        return replace(value, why=value.why or f"{pattern} is a pattern that cannot be read")
    text = value.text
    cuts: list[int] = list(range(len(text) + 1))
    order = cuts if (sign in ("#", "%%")) else cuts[::-1]
    if sign[0] == "#":
        cut = next((at for at in order if fnmatch.fnmatchcase(text[:at], pattern)), 0)
        return replace(value, text=text[cut:])
    cut = next((at for at in order if fnmatch.fnmatchcase(text[at:], pattern)), len(text))
    return replace(value, text=text[:cut])


def _substituted(part: Part, scope: Scope) -> list[Argument]:
    """Read the few commands whose output their words alone decide."""
    read = tokens(part.text) if part.text.count("$") <= _MOST_WITHIN else []
    refused = [Argument(part.written, 0, f"it is what `{part.text.strip()}` prints")]
    if not read or not all(isinstance(one, Word) for one in read):
        return refused
    words = [one for token in read if isinstance(token, Word) for one in expand(token, scope)]
    if any(word.why for word in words):
        return [Argument(part.written, 0, _first_why(words))]
    text = _printed([word.text for word in words])
    return refused if text is None else [Argument(text, 0)]


def _printed(words: list[str]) -> str | None:
    program, given = (words[0], words[1:]) if words else ("", [])
    if program == "echo" and not any(word.startswith("-") for word in given):
        return " ".join(given)
    if program == "basename" and len(given) == 1:
        return given[0].rstrip("/").rpartition("/")[2]
    if program == "dirname" and len(given) == 1 and "/" in given[0].rstrip("/"):
        return given[0].rstrip("/").rpartition("/")[0] or "/"
    if program == "seq" and 1 <= len(given) <= 3 and all(re.fullmatch(r"-?\d{1,6}", word) for word in given):
        numbers = [int(word) for word in given]
        first, step, last = (
            (1, 1, *numbers) if len(numbers) == 1 else (numbers[0], *(numbers[1:-1] or [1]), numbers[-1])
        )
        return "\n".join(map(str, range(first, last + (1 if step > 0 else -1), step)[:_MOST])) if step else None
    return None
