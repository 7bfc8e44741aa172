"""Reads a Dockerfile: base images, variables, what it runs while it builds and when it starts (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.found import Reader, Setting, Where
from trtllm_kit.migrate.named import Named, releases_in
from trtllm_kit.migrate.options import unread
from trtllm_kit.migrate.program_settings import environment, is_set_for_the_server
from trtllm_kit.migrate.programs import Text, mentions, read_words
from trtllm_kit.migrate.scripts import Said, Shell, read_shell
from trtllm_kit.migrate.shell_values import Argument, Scope, Value, assignment, expand, value_of
from trtllm_kit.migrate.shell_words import Word, tokens

_HERE = re.compile(r"<<-?[\"']?(\w+)[\"']?")


_KNOWN = frozenset({
    "LABEL", "MAINTAINER", "EXPOSE", "ADD", "COPY", "VOLUME", "USER", "WORKDIR", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK",
    "SHELL",
})  # fmt: skip
"""Instructions that say nothing of a server or a build."""


@dataclass(frozen=True)
class _Instruction:
    """One instruction; a comment between its lines is an empty line that goes on."""

    name: str
    text: str
    line: int
    here: str = ""
    here_line: int = 0


def read_dockerfile(text: str, shell: Shell) -> Iterator[Said]:
    """Yield what a Dockerfile says, in its order."""
    yield from _Stages(text, shell).all()


class _Stages:
    """Goes through the stages of a file, each with its variables."""

    def __init__(self, text: str, shell: Shell) -> None:
        self._instructions, self._shell = list(_instructions(text)), shell
        self._scope = Scope()
        self._outside: dict[str, Value] = {}
        """Arguments before the first image; a stage has them where it names them again."""
        self._stages: dict[str, dict[str, Value]] = {}
        """Variables of each stage by its name, which a later one that begins with it has too."""
        self._kept: dict[str, Value] = {}
        self._begun, self._name = False, ""
        self._entry: list[Argument] = []
        self._environments: list[Setting] = []

    def all(self) -> Iterator[Said]:
        for one in self._instructions:
            while one.name == "ONBUILD":
                name, _, rest = one.text.strip().partition(" ")
                one = replace(one, name=name.upper(), text=rest)
            yield from self._one(one)
        used = self._scope.used
        yield from (one for one in self._environments if is_set_for_the_server(one.name, str(one.value), used))

    def _one(self, one: _Instruction) -> Iterator[Said]:
        if one.name in ("ARG", "ENV"):
            yield from self._set(one)
        elif one.name == "FROM":
            yield from self._from(one)
        elif one.name == "RUN":
            yield from _run(one, self._shell, self._scope)
        elif one.name in ("CMD", "ENTRYPOINT"):
            yield from self._start(one)
        elif one.name not in _KNOWN:
            yield unread(Where(self._shell.file, one.line), f"{one.name} {one.text}", "no instruction of a Dockerfile")
        elif one.here and mentions(one.here):
            yield from read_shell(one.here, self._shell, Scope(used=self._scope.used), one.here_line)

    def _start(self, one: _Instruction) -> Iterator[Said]:
        """Yield what a container starts; the words of an entry point stand before those of ``CMD``."""
        words = _exec_form(one)
        if words is None:
            yield from read_shell(one.text, self._shell, self._scope.copy(), one.line)
        elif one.name == "ENTRYPOINT" and self._followed_by_cmd(one):
            self._entry = words
        else:
            yield from _started([*self._entry, *words], self._shell, self._scope)

    def _followed_by_cmd(self, entry: _Instruction) -> bool:
        later = (one for one in self._instructions if one.line > entry.line and one.name in ("CMD", "FROM"))
        follows = next(later, None)
        return follows is not None and follows.name == "CMD" and _exec_form(follows) is not None

    def _set(self, one: _Instruction) -> Iterator[Said]:
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
                yield from self._keep(one.name, *pair, Where(self._shell.file, word.line))

    def _keep(self, kind: str, name: str, value: Value, where: Where) -> Iterator[Said]:
        self._scope.values[name] = value
        self._scope.exported.add(name)
        if not self._begun:
            self._outside[name] = value
        if kind != "ENV":
            return
        self._kept[name] = value
        said = environment(Argument(f"{name}={value[0].text}", where.line, value[0].why), where.file)
        if isinstance(said, Setting):
            self._environments.append(said)
        else:
            yield said

    def _from(self, one: _Instruction) -> Iterator[Said]:
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
        where = Where(self._shell.file, one.line)
        if image.why:
            yield unread(where, image.text, image.why)
        elif image.text not in self._stages:
            yield Setting(Reader.CONTAINER, "image", image.text, where)
            yield from (Named(name, where) for name in releases_in(image.text))


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


def _run(one: _Instruction, shell: Shell, scope: Scope) -> Iterator[Said]:
    words = _exec_form(one)
    if one.here and one.text.lstrip().startswith("<<"):
        yield from read_shell(one.here, shell, scope.copy(), one.here_line)
    elif one.here:
        mark = _HERE.search(one.text)
        text = f"{one.text}\n{one.here}\n{mark[1] if mark else ''}\n"
        yield from read_shell(text, shell, scope.copy(), one.line)
    elif words is not None:
        yield from _started(words, shell, scope)
    else:
        text = re.sub(r"^(\s*--\w+=\S+)+", lambda match: " " * len(match[0]), one.text)
        yield from read_shell(text, shell, scope.copy(), one.line)


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


def _started(words: list[Argument], shell: Shell, scope: Scope) -> Iterator[Said]:
    for said in read_words(words, scope, shell.file, shell.version):
        if isinstance(said, Text):
            yield from read_shell(said.text, shell, said.scope, said.line)
        else:
            yield said
