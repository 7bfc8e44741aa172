"""Goes through a Dockerfile: base images, variables, what runs while it builds and when it starts (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from trtllm_kit.light import dataclass
from trtllm_kit.shell.values import Argument, Scope, Value, assignment, expand, value_of
from trtllm_kit.shell.words import Word, tokens

NAMES = re.compile(r"(Dockerfile|Containerfile)(\..+)?|.+\.Dockerfile", re.IGNORECASE)
"""How such files are called."""
_HERE = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_KNOWN = frozenset({
    "LABEL", "MAINTAINER", "EXPOSE", "ADD", "COPY", "VOLUME", "USER", "WORKDIR", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK",
    "SHELL",
})  # fmt: skip
"""Instructions that say nothing of a server or a build."""


@dataclass(frozen=True)
class Script:
    """Text that a shell is given."""

    text: str
    line: int
    scope: Scope


@dataclass(frozen=True)
class Words:
    """A command in the form of a list, which no shell sees."""

    words: tuple[Argument, ...]
    scope: Scope


@dataclass(frozen=True)
class Copied:
    """Text that is written into a file of the image."""

    text: str
    line: int


@dataclass(frozen=True)
class Variable:
    """One variable that programs of the container see."""

    name: str
    value: Argument
    line: int


@dataclass(frozen=True)
class Image:
    """What a stage begins with, where it is no earlier stage."""

    name: Argument
    line: int


@dataclass(frozen=True)
class NoInstruction:
    """A line that is none."""

    text: str
    line: int


Step = Script | Words | Copied | Variable | Image | NoInstruction


@dataclass(frozen=True)
class _Instruction:
    """One instruction; a comment between its lines is an empty line that goes on."""

    name: str
    text: str
    line: int
    here: str = ""
    here_line: int = 0


def steps(text: str, used: set[str]) -> Iterator[Step]:
    """Yield what a Dockerfile does, in its order; names that it asks for are added to ``used``."""
    yield from _Stages(text, used).all()


class _Stages:
    """Goes through the stages of a file, each with its variables."""

    def __init__(self, text: str, used: set[str]) -> None:
        self._instructions = list(_instructions(text))
        self._scope = Scope(used=used)
        self._outside: dict[str, Value] = {}
        """Arguments before the first image; a stage has them where it names them again."""
        self._stages: dict[str, dict[str, Value]] = {}
        """Variables of each stage by its name, which a later one that begins with it has too."""
        self._kept: dict[str, Value] = {}
        self._begun, self._name = False, ""
        self._entry: list[Argument] = []

    def all(self) -> Iterator[Step]:
        for one in self._instructions:
            while one.name == "ONBUILD":
                name, _, rest = one.text.strip().partition(" ")
                one = replace(one, name=name.upper(), text=rest)
            yield from self._one(one)

    def _one(self, one: _Instruction) -> Iterator[Step]:
        if one.name in ("ARG", "ENV"):
            yield from self._set(one)
        elif one.name == "FROM":
            yield from self._from(one)
        elif one.name == "RUN":
            yield _run(one, self._scope)
        elif one.name in ("CMD", "ENTRYPOINT"):
            yield from self._start(one)
        elif one.name not in _KNOWN:
            yield NoInstruction(f"{one.name} {one.text}", one.line)
        elif one.here:
            yield Copied(one.here, one.here_line)

    def _start(self, one: _Instruction) -> Iterator[Step]:
        """Yield what a container starts; the words of an entry point stand before those of ``CMD``."""
        words = _exec_form(one)
        if words is None:
            yield Script(one.text, one.line, self._scope.copy())
        elif one.name == "ENTRYPOINT" and self._followed_by_cmd(one):
            self._entry = words
        else:
            yield Words((*self._entry, *words), self._scope)

    def _followed_by_cmd(self, entry: _Instruction) -> bool:
        later = (one for one in self._instructions if one.line > entry.line and one.name in ("CMD", "FROM"))
        follows = next(later, None)
        return follows is not None and follows.name == "CMD" and _exec_form(follows) is not None

    def _set(self, one: _Instruction) -> Iterator[Step]:
        """Set the variables of ``ARG`` and ``ENV``; those of ``ENV`` are there when the container runs."""
        words = [token for token in tokens(one.text, one.line) if isinstance(token, Word)]
        pairs = [(word, assignment(word, self._scope)) for word in words]
        if one.name == "ENV" and len(words) > 1 and pairs[0][1] is None:
            values = [value_of(word, self._scope) for word in words[1:]]
            why = next((value.why for value in values if value.why), "")
            text = Argument(" ".join(value.text for value in values), one.line, why)
            pairs = [(words[0], (words[0].written, (text,)))]
        for word, pair in pairs:
            if one.name == "ARG" and pair is None and word.written in self._outside:
                pair = (word.written, self._outside[word.written])
            if pair is not None and pair[1]:
                yield from self._keep(one.name, *pair, word.line)

    def _keep(self, kind: str, name: str, value: Value, line: int) -> Iterator[Step]:
        self._scope.values[name] = value
        self._scope.exported.add(name)
        if not self._begun:
            self._outside[name] = value
        if kind == "ENV":
            self._kept[name] = value
            yield Variable(name, value[0], line)

    def _from(self, one: _Instruction) -> Iterator[Step]:
        """Begin a stage: with an image, or with what an earlier stage made."""
        scope = Scope(dict(self._outside), used=self._scope.used)
        found = [token for token in tokens(one.text, one.line) if isinstance(token, Word)]
        words = [word for token in found for word in expand(token, scope) if not word.text.startswith("--")]
        image = words[0] if words else Argument("", one.line, "it names no image")
        self._stages[self._name] = self._kept
        self._name = words[2].text if len(words) > len("as") else ""
        self._kept = dict(self._stages.get(image.text, {})) if image.text else {}
        self._scope = Scope(dict(self._kept), set(self._kept), self._scope.used)
        self._begun, self._entry = True, []
        if image.why or image.text not in self._stages:
            yield Image(image, one.line)


def _instructions(text: str) -> Iterator[_Instruction]:
    lines = [one.rstrip("\r") for one in text.split("\n")]
    at = 0
    while at < len(lines):
        begin, taken = at, list[str]()
        while at < len(lines):
            one = lines[at]
            at += 1
            passed = one.lstrip().startswith("#") or not one.strip()
            if passed and not taken:
                begin = at
                continue
            taken.append("\\" if passed else one)
            if not passed and not one.rstrip().endswith("\\"):
                break
        if taken:
            name, _, rest = "\n".join(taken).strip().partition(" ")
            here, used = _here(name.upper(), rest, lines[at:])
            yield _Instruction(name.upper(), rest, begin + 1, here, at + 1)
            at += used


def _here(name: str, text: str, after: list[str]) -> tuple[str, int]:
    """Return the text that an instruction holds up to its mark (``<<EOF``), and how many lines it takes."""
    mark = _HERE.search(text) if name in ("RUN", "COPY", "ADD") else None
    if mark is None:
        return "", 0
    end = next((number for number, one in enumerate(after) if one.strip() == mark[1]), len(after))
    return "\n".join(after[:end]), end + 1


def _run(one: _Instruction, scope: Scope) -> Step:
    words = _exec_form(one)
    if one.here and one.text.lstrip().startswith("<<"):
        return Script(one.here, one.here_line, scope.copy())
    if one.here:
        mark = _HERE.search(one.text)
        return Script(f"{one.text}\n{one.here}\n{mark[1] if mark else ''}\n", one.line, scope.copy())
    if words is not None:
        return Words(tuple(words), scope)
    text = re.sub(r"^(\s*--\w+=\S+)+", lambda match: " " * len(match[0]), one.text)
    return Script(text, one.line, scope.copy())


def _exec_form(one: _Instruction) -> list[Argument] | None:
    """Return the words of ``["a", "b"]``, each on the line where it stands; None for the form of a shell."""
    plain = one.text.replace("\\\n", " \n")
    try:
        words = json.loads(plain)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    found, at = [], 0
    for word in words:
        place = plain.find(json.dumps(word, ensure_ascii=False), at)
        at = max(at, place)
        found.append(Argument(word, one.line + plain.count("\n", 0, at)))
    return found
