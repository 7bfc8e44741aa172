"""Where ``trtllm-serve`` is called in a script, and the script with other words in their place (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.release.keys import sections
from trtllm_kit.shell.tree import Branches, Command, Function, Group, Loop, Node, script
from trtllm_kit.shell.words import Here, Word
from trtllm_kit.upstream.llm_api import llm_api_keys
from trtllm_kit.upstream.serve_options import COMMANDS, SERVE, option_anywhere
from trtllm_kit.yaml_lines import YamlError, parse_yaml

DOCUMENT = "--extra_llm_api_options"
_SHELLS = ("bash", "sh")
_SEVERAL = re.compile(r"\$[@*]|\[[@*]\]")
"""A variable that stands for as many words as there are."""
Span = tuple[int, int]
"""Places in the text: of the first letter, and behind the last."""


@dataclass(frozen=True)
class Option:
    """One option as it is written."""

    name: str
    value: str | bool
    """True for one that takes no value."""
    line: int
    joined: bool = False
    """Whether name and value are one word, with ``=`` between them."""
    at: Span | None = None
    """Where its name stands in the text; None inside a text of which a shell reads something else than stands there."""
    value_at: Span | None = None
    """Where its value stands, if that is a word of its own."""


@dataclass(frozen=True)
class Given:
    """One call of ``trtllm-serve`` or of a sub-command."""

    program: str
    options: tuple[Option, ...]
    line: int
    others: tuple[str, ...] = ()
    """Words that are neither options nor their values nor the model, as they are written."""

    @property
    def document(self) -> str | None:
        """The path of the LLM-API document that it is given; None for none."""
        named = (one for one in self.options if _is_document(one.name, self.program))
        return next((one.value for one in named if isinstance(one.value, str)), None)


@dataclass(frozen=True)
class Document:
    """An LLM-API document that the script writes itself (``cat > file.yaml <<EOF``)."""

    file: str
    """Its last name."""
    text: str
    line: int
    """Line of its first line."""
    at: Span | None = None
    """Where it stands in the script; None where it is written in a text for another shell that reads it otherwise."""
    tabs: str = ""
    """What ``<<-`` takes away in front of its lines."""
    expands: bool = False
    """Whether the shell puts something in the place of variables in it."""
    is_piece: bool = False
    """Whether it goes behind what the file holds already (``>>``, ``tee -a``)."""


class Script:
    """A script's text, of which options and documents can be replaced where they stand."""

    def __init__(self, text: str) -> None:
        """Take the text."""
        self.nodes = script(text)
        self.before = text
        self._lines = text.splitlines(keepends=True)
        self._edits: dict[Span, str | None] = {}

    def commands(self) -> Iterator[tuple[Command, int | None]]:
        """Yield every command, those that a shell is given as a text too, each with where its text begins."""
        for command in _commands(self.nodes):
            yield command, 0
            word = _given_to_a_shell(command)
            if word is not None:
                as_read = self.before[word.begin + 1 : word.end - 1] == word.written
                base = word.begin + 1 if as_read else None
                yield from ((inner, base) for inner in _commands(script(word.written, word.line)))

    def documents(self) -> Iterator[Document]:
        """Yield the LLM-API documents that the script writes."""
        for command, base in self.commands():
            for here, name in zip(command.heres, _names(command), strict=False):
                if name.endswith((".yaml", ".yml")) and _is_llm_api(here.text):
                    yield self._document(command, here, name, base)

    def _document(self, command: Command, here: Here, name: str, base: int | None) -> Document:
        first, count = here.line - 1, here.text.count("\n") + 1
        lines = self._lines[first : first + count]
        begin = sum(map(len, self._lines[:first]))
        bare = [line.lstrip("\t") for line in lines]
        stands = base is not None and [line.rstrip("\r\n") for line in bare] == here.text.split("\n")
        return Document(
            file=PurePosixPath(name).name,
            text="".join(bare) if stands else here.text + "\n",
            line=here.line,
            at=(begin, begin + sum(map(len, lines))) if stands else None,
            tabs=lines[0][: len(lines[0]) - len(bare[0])] if stands else "",
            expands=here.expands and re.search(r"[$`]", here.text) is not None,
            is_piece="-a" in [word.written for word in command.words] or self._appends(command, base or 0),
        )

    def _appends(self, command: Command, base: int) -> bool:
        return any(self.before[: word.begin + base].rstrip().endswith(">>") for word in command.targets)

    def replace_document(self, document: Document, text: str) -> bool:
        """Put another text in the place of a document; whether there is such a place."""
        if document.at is None:
            return False
        self._edits[document.at] = "".join(f"{document.tabs}{line}" for line in text.splitlines(keepends=True))
        return True

    def replace_option(self, option: Option, name: str | None, value: str | bool) -> bool:
        """Put another name or value in the place of an option, or take it out (``name`` None); whether it could be."""
        if option.at is None:
            return False
        new = None if name is None else self._written(option, name, value)
        if name is None or new is not None:
            self._edits[option.at[0], (option.value_at or option.at)[1]] = new
        return name is None or new is not None

    def _written(self, option: Option, name: str, value: str | bool) -> str | None:
        """Return an option in its own quotes and signs; None where a part of it cannot be found."""
        at, held = option.at or (0, 0), option.value_at
        raw, mark, joined = (
            self.before[slice(*at)].partition("=") if option.joined else (self.before[slice(*at)], "", "")
        )
        if option.name not in raw and option.joined:
            return None
        first = raw.replace(option.name, name, 1) if option.name in raw else name
        if value is True or (value == option.value and held is None):
            return f"{first}{mark}{joined}"
        if option.value is True:
            return f"{first} {shlex.quote(str(value))}"
        gap, old = (self.before[at[1] : held[0]], self.before[slice(*held)]) if held else (mark, joined)
        new = old if value == option.value else _like(old, str(option.value), str(value))
        return None if new is None else f"{first}{gap}{new}"

    def text(self) -> str:
        """Return the script as it is now."""
        pieces: list[str] = []
        gone: list[int] = []
        at = 0
        for (begin, end), new in sorted(self._edits.items()):
            between = self.before[at:begin]
            pieces += [between.rstrip(" \t") if new is None else between, new or ""]
            if new is None:
                gone.append(sum(map(len, pieces)))
            at = end
        text = "".join((*pieces, self.before[at:]))
        for begin in sorted({text.rfind("\n", 0, place) + 1 for place in gone}, reverse=True):
            text = _closed(text, begin)
        return text


def _like(written: str, old: str, new: str) -> str | None:
    """Return a value in the quotes of another; None where that is not written as it is read."""
    if written == old:
        return shlex.quote(new)
    return written.replace(old, new, 1) if old in written else None


def _closed(text: str, begin: int) -> str:
    """Take a line out of which only the sign that goes on is left, and that sign where nothing follows."""
    stop = text.find("\n", begin)
    end = len(text) if stop < 0 else stop + 1
    left = text[begin:end].strip()
    if left not in ("", "\\"):
        return text
    before = text[:begin]
    return (before if left else re.sub(r"[ \t]*\\[ \t]*(\r?\n)$", r"\1", before)) + text[end:]


def commands_of(text: Script) -> Iterator[Given]:
    """Yield the calls of ``trtllm-serve`` in a script, in its order."""
    for command, base in text.commands():
        at = next((number for number, word in enumerate(command.words) if _name(word) == SERVE), None)
        if at is not None:
            yield _given(command.words[at + 1 :], command.words[at].line, base)


def _given(words: tuple[Word, ...], line: int, base: int | None) -> Given:
    sub = words[0].written if words and words[0].written in COMMANDS else ""
    program = f"{SERVE} {sub}" if sub else SERVE
    options, others = list[Option](), list[str]()
    left = iter(words[1:] if sub else words)
    waiting = next(left, None)
    while waiting is not None:
        word, waiting = waiting, next(left, None)
        if not re.match(r"--?[A-Za-z]", word.written):
            others.append(word.written)
        elif _takes_the_next(word, waiting, program):
            options.append(_option(word, waiting, base))
            waiting = next(left, None)
        else:
            options.append(_option(word, None, base))
    model = 1 if others and not _SEVERAL.search(others[0]) else 0
    return Given(program, tuple(options), line, tuple(others[model:]))


def _takes_the_next(word: Word, following: Word | None, program: str) -> bool:
    """Whether the word behind an option is its value."""
    if following is None or "=" in word.written:
        return False
    known = option_anywhere(word.written, program)
    return known.type != "flag" if known else not following.written.startswith("-")


def _option(word: Word, value: Word | None, base: int | None) -> Option:
    name, mark, joined = word.written.partition("=")
    said: str | bool = value.written if value is not None else joined if mark else True
    return Option(name, said, word.line, bool(mark), _span(word, base), _span(value, base))


def _span(word: Word | None, base: int | None) -> Span | None:
    return None if word is None or base is None else (word.begin + base, word.end + base)


def _is_document(name: str, program: str) -> bool:
    known = option_anywhere(name, program)
    return program == SERVE and known is not None and known.flag == DOCUMENT


def _commands(nodes: tuple[Node, ...]) -> Iterator[Command]:
    for node in nodes:
        if isinstance(node, Command):
            yield node
        elif isinstance(node, Loop):
            yield from _commands((*node.condition, *node.body))
        elif isinstance(node, Branches):
            for arm in (*node.conditions, *node.arms):
                yield from _commands(arm)
        elif isinstance(node, Function | Group):
            yield from _commands(node.body)


def _given_to_a_shell(command: Command) -> Word | None:
    words = command.words
    for number, word in enumerate(words[:-1]):
        if word.written in ("-c", "-lc", "-ec") and any(_name(one) in _SHELLS for one in words[:number]):
            return words[number + 1]
    return None


def _names(command: Command) -> list[str]:
    """Return the files that a command writes to: those behind ``>``, or those that ``tee`` is given."""
    targets = [word.written for word in command.targets]
    given = [word.written for word in command.words[1:] if not word.written.startswith("-")]
    return targets or (given if command.words and _name(command.words[0]) == "tee" else [])


def _is_llm_api(text: str) -> bool:
    """Whether a text is a mapping with a key of the LLM API in any release."""
    try:
        data = parse_yaml(text.encode()).data
    except YamlError:
        return False
    known = {row.key for row in (*llm_api_keys(early=True), *llm_api_keys())} | sections()
    return bool(known & data.keys()) and not {"apiVersion", "kind"} <= data.keys()


def _name(word: Word) -> str:
    return PurePosixPath(word.written).name
