"""Calls of ``trtllm-serve`` as text, from one release to another: options, and what a document says beside (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from trtllm_kit.errors import NotMoved
from trtllm_kit.findings import Finding
from trtllm_kit.light import dataclass
from trtllm_kit.lint.report import Located
from trtllm_kit.migrate.release.change import UNSAID, How, Row
from trtllm_kit.migrate.release.keys import Leaf, takes
from trtllm_kit.migrate.release.serve_precedence import Said, other_winner
from trtllm_kit.migrate.release.serve_unread import left_calls, left_documents
from trtllm_kit.migrate.release.serve_words import DOCUMENT, Given, Option, Script, commands_of
from trtllm_kit.migrate.release.yaml_file import Rewritten, rewritten
from trtllm_kit.plan.given.serving import unknown
from trtllm_kit.upstream.precedence import key_of_option, precedence
from trtllm_kit.upstream.serve_options import (
    ServeOption,
    option_anywhere,
    option_named,
    option_of_flag,
    serve_options,
)
from trtllm_kit.yaml_lines import YamlError, parse_yaml

Reader = Callable[[str], Mapping[str, Any] | None]
"""Gives the document that a command names by a path; None where it cannot be read."""
_SET = "--set"


def serve_rewritten(
    text: str, file: str, source: str, target: str, reader: Reader, *, keep_behaviour: bool = True
) -> Rewritten:
    """Return a script, or one command, whose calls of ``trtllm-serve`` and documents inside are for ``target``.

    Documents that stand in other files are read and not changed; a row says what to write into them.
    """
    script = Script(text)
    moved = _Moved([], [], [], [], [])
    held = _documents(script, moved, file, (source, target), keep_behaviour=keep_behaviour)
    calls = list(commands_of(script))
    for given in calls:
        command = _Command(given, source, target, document_of(given, held, reader))
        rows = list(command.rows())
        unwritten = {
            (one.name, one.line) for one in command.edits if not script.replace_option(one, *command.edits[one])
        }
        moved.rows.extend(_by_hand(row) if (row.key, row.line) in unwritten else row for row in rows)
        moved.problems.extend(Located(finding, file, line) for finding, line in command.problems())
        moved.notes.extend(command.notes(held))
    moved.unread.extend(left_calls(text, calls))
    if not (calls or held or moved.unread):
        raise NotMoved(
            f"{file} has nothing to carry over",
            why="it calls no trtllm-serve and writes no LLM-API document",
            hint="trtkit migrate engine, for what builds or serves an engine",
        )
    unread = tuple(dict.fromkeys(moved.unread))
    notes = tuple(dict.fromkeys((*moved.notes, *unread)))
    return Rewritten(
        "trtllm-serve command",
        text,
        script.text(),
        tuple(moved.rows),
        tuple(moved.problems),
        notes,
        tuple(moved.unresolved),
        unread,
    )


class _Moved(NamedTuple):
    """What is told of a script."""

    rows: list[Row]
    problems: list[Located]
    unresolved: list[Located]
    notes: list[str]
    unread: list[str]


def _documents(
    script: Script, moved: _Moved, file: str, between: tuple[str, str], *, keep_behaviour: bool
) -> dict[str, Mapping[str, Any] | None]:
    """Carry the documents over that a script writes itself; return those of the old release by the file's name.

    None stands for one of which only pieces are known.
    """
    held: dict[str, Mapping[str, Any] | None] = {}
    documents = list(script.documents())
    left = left_documents(documents)
    for here in documents:
        held[here.file] = None if here.is_piece else _data(here.text)
        if here.line in left:
            moved.unread.append(f"line {here.line}: {here.file} stays as it is: {left[here.line]}")
            continue
        made = rewritten(here.text.encode(), file, *between, keep_behaviour=keep_behaviour)
        if made.changed:
            script.replace_document(here, made.text)
        moved.rows.extend(_moved_down(row, here.line - 1) for row in made.rows)
        moved.problems.extend(_down(one, here.line - 1) for one in made.problems)
        moved.unresolved.extend(_down(one, here.line - 1) for one in made.unresolved)
        moved.notes.extend(f"from line {here.line} on, {here.file}: {note}" for note in made.notes)
    return held


def _by_hand(row: Row) -> Row:
    """Return the row of an option that could not be written where it stands."""
    becomes = row.to if row.after in (UNSAID, True) else f"{row.to} {_text(row.after)}"
    do = f"write {becomes} there" if row.to else "take it out there"
    why = f"{row.why}; it stands in a text that another shell reads otherwise: {do}"
    return Row(row.key, row.before, row.key, row.before, How.LOST, why, row.certainty, row.line)


@dataclass(frozen=True)
class _Option:
    """An option as it is given, and what the release that it is for says of it."""

    given: Option
    known: ServeOption
    key: str | None
    """Of the document."""

    @property
    def name(self) -> str:
        return self.given.name

    @property
    def value(self) -> str | bool:
        return self.given.value

    @property
    def line(self) -> int:
        return self.given.line


class _Command:
    """One call, taken over option by option."""

    def __init__(self, given: Given, source: str, target: str, document: Mapping[str, Any] | None) -> None:
        self.given, self.source, self.target, self.document = given, source, target, document
        self.program = given.program
        self.edits: dict[Option, tuple[str | None, str | bool]] = {}

    @property
    def _is_known(self) -> bool:
        return all(serve_options(version, self.program) for version in (self.source, self.target))

    def notes(self, own: Collection[str]) -> Iterator[str]:
        """Yield what cannot be judged; ``own`` are the documents that the script writes itself."""
        for version in (self.source, self.target):
            if not serve_options(version, self.program):
                yield f"which options {self.program} of {version} takes was not read: they stay as they are"
        path = self.given.document
        if path is not None and PurePosixPath(path).name not in own:
            yield f"the document too: trtkit migrate yaml {path} --from {self.source} --to {self.target} --in-place"

    def problems(self) -> Iterator[tuple[Finding, int]]:
        """Yield options that the release which the command is for does not take."""
        if not serve_options(self.source, self.program):
            return
        for one in self.given.options:
            if option_named(self.source, one.name, self.program) is None:
                yield unknown(one.name, self.source, self.program), one.line

    def rows(self) -> Iterator[Row]:
        """Yield a row for each option that changes, and note the change of its text."""
        if not self._is_known:
            return
        for one in self.given.options:
            known = option_named(self.source, one.name, self.program) or option_anywhere(one.name, self.program)
            if known is not None:
                yield from self._option(_Option(one, known, key_of_option(known.flag)))

    def _option(self, one: _Option) -> Iterator[Row]:
        new = option_of_flag(self.target, one.known.flag, self.program)
        if new is None:
            yield self._without_option(one)
            return
        name = one.name if one.name in new.names else new.flag
        value, how, why = self._word(one, new)
        if name != one.name or value != one.value or how is How.LOST:
            self._write(one, name, value)
            told = f"{self.program} of {self.target} calls it {name}" if name != one.name and not why else why
            yield Row(one.name, one.value, name, value, how, told, new.certainty, one.line)
        yield from self._order(one, name)

    def _word(self, one: _Option, new: ServeOption) -> tuple[str | bool, How, str]:
        if new.type != "choice" or not isinstance(one.value, str) or one.value in new.choices or "$" in one.value:
            return one.value, How.EXACT, ""
        for words in _SAME_WORDS:
            other = next((word for word in words if word in new.choices), None)
            if one.value in words and other is not None:
                return other, How.EXACT, f"{self.target} calls {one.value} {other}"
        if one.value in one.known.choices:
            taken = ", ".join(map(str, new.choices))
            return one.value, How.LOST, f"{self.target} takes {taken}, and refuses {one.value}"
        return one.value, How.EXACT, ""

    def _without_option(self, one: _Option) -> Row:
        """Take out an option that the target does not have; its key in the document is what is left."""
        certainty = one.known.seen_from(self.target).certainty
        key, value = one.key, as_yaml(one.value)
        if one.known.flag == _SET and isinstance(one.value, str):
            key, _, text = one.value.partition("=")
            value = as_yaml(text)
        self._write(one, None, True)
        if key is not None and takes(self.target, Leaf(key, value), {}):
            if option_of_flag(self.target, _SET, self.program) is not None:
                setting = f"{key}={_text(value)}"
                self._write(one, _SET, setting)
                why = f"{self.target} has no such option, and the key"
                return Row(one.name, one.value, _SET, setting, How.EXACT, why, certainty, one.line)
            where = self.given.document or f"a document, and {DOCUMENT} in front of its path"
            why = f"{self.target} has no such option; write {key}: {_text(value)} into {where}"
            return Row(one.name, one.value, "", UNSAID, How.LOST, why, certainty, one.line)
        return Row(one.name, one.value, "", UNSAID, How.LOST, f"{self.target} has no such option", certainty, one.line)

    def _order(self, one: _Option, name: str) -> Iterator[Row]:
        """Yield what changes because the document and the command line both set a key, and another one wins now."""
        if one.key is None or self.document is None:
            return
        said = Said(self.document, one.key, as_yaml(one.value))
        other = other_winner(said, self.source, self.target)
        order = precedence(self.target)
        if other is None or order is None:
            return
        before, after = other
        why = f"{self.source} goes by {before.by}, {self.target} by {after.by}"
        if after.by != "the command line":
            what = (
                f"{why}; write {one.key}: {_text(before.value)} into the document"
                if before.by == "the command line"
                else why
            )
            yield Row(name, one.value, name, one.value, How.LOST, what, order.certainty, one.line)
            return
        if before.value is None:
            self._write(one, None, True)
            yield Row(name, one.value, "", UNSAID, How.EXACT, f"{why}; it had no effect", order.certainty, one.line)
            return
        if before.value != said.option:
            self._write(one, name, _text(before.value))
            yield Row(name, one.value, name, before.value, How.EXACT, why, order.certainty, one.line)

    def _write(self, one: _Option, name: str | None, value: str | bool) -> None:
        """Note that an option is written otherwise, or taken out."""
        self.edits[one.given] = (name, value)


_SAME_WORDS = (("trt", "tensorrt"),)
"""Values that mean the same."""


def document_of(given: Given, held: Mapping[str, Mapping[str, Any] | None], reader: Reader) -> Mapping[str, Any] | None:
    """Return the document that a call is given: one of ``held``, by its name, or what ``reader`` finds beside."""
    if given.document is None or "$" in given.document:
        return None
    name = PurePosixPath(given.document).name
    return held[name] if name in held else reader(given.document)


def _data(text: str) -> Mapping[str, Any]:
    try:
        return parse_yaml(text.encode()).data
    except YamlError:
        return {}


def as_yaml(value: Any) -> Any:
    """Return the value that the words of an option stand for; as it is where they are no YAML."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _moved_down(row: Row, lines: int) -> Row:
    return Row(
        row.key, row.before, row.to, row.after, row.how, row.why, row.certainty, row.line + lines if row.line else 0
    )


def _down(one: Located, lines: int) -> Located:
    return Located(one.finding, one.file, None if one.line is None else one.line + lines)
