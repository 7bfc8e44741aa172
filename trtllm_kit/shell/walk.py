"""Goes through a script as a shell would, over both sides of every branch, and yields what it starts (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import PurePosixPath

from trtllm_kit.light import dataclass
from trtllm_kit.shell.tree import Branches, Command, Function, Group, Loop, Node, script
from trtllm_kit.shell.values import FOLDER, Argument, Scope, Value, assignment, expand, number_of, value_of
from trtllm_kit.shell.words import Broken, Here, Word

_MOST_COMMANDS = 5_000
_MOST_LEVELS = 12
"""Functions that call functions, and scripts within scripts."""
_SETS = frozenset({"export", "declare", "typeset", "readonly", "local"})
_COUNTED = re.compile(r"\s*(\w+)\s*=([^;]*);\s*(\w+)\s*(<=?)([^;]*);\s*(?:(\w+)\+\+|\+\+(\w+)|(\w+)\s*\+=\s*1)\s*")
_EMPTY = re.compile(r"-z\s+\$\{?(\w+)\}?(?::-\})?")
_CHANGES_FOLDER = frozenset({"cd", "pushd", "popd"})
SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
Load = Callable[[str], str | None]
"""Returns the text of a file that a script reads in (``source``); None for one that is not there."""


@dataclass(frozen=True)
class Called:
    """One command with the words that it is given."""

    arguments: tuple[Argument, ...]
    line: int
    scope: Scope
    """What is set where it stands; what is set for it alone is in ``own``."""
    own: Mapping[str, Argument] = field(default_factory=dict)
    heres: tuple[Here, ...] = ()
    targets: tuple[str, ...] = ()
    background: bool = False
    """Whether the script goes on while it runs."""
    arms: tuple[tuple[int, int], ...] = ()
    """The branches that it stands in, outermost first: a number for each, and which of its arms."""


@dataclass(frozen=True)
class Exported:
    """A variable that every program started after it sees."""

    name: str
    value: Argument
    line: int


Event = Called | Exported | Broken


def walk(text: str, scope: Scope, line: int = 1, load: Load | None = None) -> Iterator[Event]:
    """Yield what a script does, in its order. ``line`` is that of its first line; ``scope`` is changed by it."""
    yield from _Walker(load).nodes(script(text, line), scope)


class _Walker:
    """Holds what is counted over a whole script."""

    def __init__(self, load: Load | None) -> None:
        self._load, self._left, self._level = load, _MOST_COMMANDS, 0
        self._functions: dict[str, Function] = {}
        self._called: set[str] = set()
        self._replaced: list[Function] = []
        self._arms: tuple[tuple[int, int], ...] = ((0, 0),)
        self._arms_before = 0

    def nodes(self, body: tuple[Node, ...], scope: Scope) -> Iterator[Event]:
        yield from self._all(body, scope)
        while self._level == 0 and (rest := self._not_called()):
            for function in rest:  # read, though nothing here calls it
                self._arms_before += 1
                self._arms = ((0, self._arms_before),)
                yield from self._all(function.body, scope.copy())

    def _all(self, body: tuple[Node, ...], scope: Scope) -> Iterator[Event]:
        for node in body:
            if isinstance(node, Command):
                yield from self._command(node, scope)
            elif isinstance(node, Function):
                self._define(node)
            elif isinstance(node, Group):
                yield from self._all(node.body, scope.copy() if node.apart else scope)
            elif isinstance(node, Loop):
                yield from self._loop(node, scope)
            else:
                yield from self._branches(node, scope)

    def _not_called(self) -> list[Function]:
        """Return the functions that nothing has called since they were defined, and take them for called."""
        rest = [function for name, function in self._functions.items() if name not in self._called]
        found = [*self._replaced, *rest]
        self._replaced, self._called = [], {*self._functions}
        return found

    def _define(self, node: Function) -> None:
        before = self._functions.get(node.name)
        if before is not None and node.name not in self._called:
            self._replaced.append(before)
        self._called.discard(node.name)
        self._functions[node.name] = node

    def _command(self, node: Command, scope: Scope) -> Iterator[Event]:
        yield from node.broken
        if self._left == 0:
            text = " ".join(word.written for word in node.words)
            why = f"more than {_MOST_COMMANDS:,} commands run before it: it and all that follows is not read"
            yield Broken(node.line, text, why)
        self._left -= 1
        if self._left < 0:
            return
        for word in node.words:
            yield from self._substituted(word, scope)
        own, words = self._own(node.words, scope)
        if not words:
            scope.values.update(own)
            yield from (
                Exported(name, value[0], node.line) for name, value in own.items() if name in scope.exported and value
            )
            yield from self._handed(node, scope, ())
            return
        if words[0].plain in _SETS or words[0].plain in ("unset", "read", "shift"):
            yield from self._sets(words, node.line, scope)
            return
        arguments = tuple(one for word in words for one in expand(word, scope))
        yield from self._started(node, arguments, {name: value[0] for name, value in own.items() if value}, scope)

    def _substituted(self, word: Word, scope: Scope) -> Iterator[Event]:
        """Go through the commands whose output a word holds, ``$(...)``."""
        for part in word.parts:
            if part.kind == "substitution":
                yield from self._inside(part.text, word.line, scope.copy())
        for inner in word.array or ():
            yield from self._substituted(inner, scope)

    def _own(self, words: tuple[Word, ...], scope: Scope) -> tuple[dict[str, Value], tuple[Word, ...]]:
        """Take the assignments from the front of a command, those of ``env`` too."""
        own: dict[str, Value] = {}
        for number, word in enumerate(words):
            found = assignment(word, scope)
            if found is None and word.plain != "env":
                return own, words[number:]
            if found is not None:
                own[found[0]] = found[1]
                if len(own) == len(words):
                    scope.values[found[0]] = found[1]  # A=1 B=$A
        return own, ()

    def _sets(self, words: tuple[Word, ...], line: int, scope: Scope) -> Iterator[Event]:
        """Read ``export``, ``declare`` and their like."""
        kind, rest = words[0].plain, words[1:]
        exports = kind == "export" or any(word.plain.startswith("-") and "x" in word.plain for word in rest)
        if kind == "shift":
            scope.values.update(
                {str(at): scope.values.pop(str(at + 1)) for at in range(1, 9) if str(at + 1) in scope.values}
            )
            return
        for word in rest:
            found = assignment(word, scope)
            name = found[0] if found else word.plain
            if found is not None:
                scope.values[name] = found[1]
            elif kind == "unset":
                scope.values.pop(name, None)
            elif kind == "read" and not name.startswith("-"):
                scope.values[name] = (Argument(f"${name}", line, f"{name} is read from the input"),)
            if exports and name and not name.startswith("-"):
                scope.exported.add(name)
                value = scope.values.get(name, ())[:1]
                yield from (Exported(name, one, word.line) for one in value)

    def _started(
        self, node: Command, arguments: tuple[Argument, ...], own: dict[str, Argument], scope: Scope
    ) -> Iterator[Event]:
        name = arguments[0].text if arguments and not arguments[0].why else ""
        if name in self._functions and self._level < _MOST_LEVELS:
            yield from self._call(self._functions[name], arguments[1:], scope)
        elif name in ("source", ".") and len(arguments) > 1 and self._load is not None:
            self._read_in(arguments[1], scope)
        elif name == "eval" and not any(one.why for one in arguments):
            yield from self._inside(" ".join(one.text for one in arguments[1:]), node.line, scope)
        else:
            targets = tuple(value_of(word, scope).text for word in node.targets)
            if name in _CHANGES_FOLDER:
                scope.values[FOLDER] = (_changed(name, arguments[1:], scope),)
            yield Called(arguments, node.line, scope, own, node.heres, targets, node.background, self._arms)
            yield from self._handed(node, scope, arguments)

    def _handed(self, node: Command, scope: Scope, arguments: tuple[Argument, ...]) -> Iterator[Event]:
        """Read the text that a shell is handed (``bash <<EOF``)."""
        names = [PurePosixPath(one.text).name for one in arguments]
        if names and names[-1] in ("-", "-s", "-se", "-es", "-e", "-x"):
            names.pop()
        if names and names[-1] in SHELLS:
            for here in node.heres:
                yield from self._inside(here.text, here.line, scope if here.expands else scope.child())

    def _inside(self, text: str, line: int, scope: Scope) -> Iterator[Event]:
        if self._level >= _MOST_LEVELS:
            yield Broken(line, text, f"scripts within scripts beyond {_MOST_LEVELS} levels")
            return
        self._level += 1
        try:
            yield from self._all(script(text, line), scope)
        finally:
            self._level -= 1

    def _call(self, function: Function, given: tuple[Argument, ...], scope: Scope) -> Iterator[Event]:
        """Go through a function with its arguments; what it sets stays set."""
        self._called.add(function.name)
        self._level += 1
        numbers = {str(at): scope.values.get(str(at)) for at in range(1, 10)} | {
            name: scope.values.get(name) for name in "@*"
        }
        for at in range(1, 10):
            scope.values.pop(str(at), None)
        scope.values.update({str(at): (one,) for at, one in enumerate(given[:9], start=1)})
        scope.values["@"] = scope.values["*"] = given
        try:
            yield from self._all(function.body, scope)
        finally:
            self._level -= 1
        for name, value in numbers.items():
            scope.values.pop(name, None)
            if value is not None:
                scope.values[name] = value

    def _read_in(self, file: Argument, scope: Scope) -> None:
        """Take the variables of a file that a script reads in; what that file starts is read with the file."""
        text = self._load(file.text) if self._load is not None and not file.why else None
        if text is None or self._level >= _MOST_LEVELS:
            return
        self._level += 1
        for _ in self._all(script(text), scope):
            pass
        self._level -= 1

    def _loop(self, node: Loop, scope: Scope) -> Iterator[Event]:
        if not node.name:
            changed = {name for name in _assigned(node.body) if name in scope.values}
            why = f"it changes in the loop of line {node.line}"
            scope.values.update({name: (Argument(f"${name}", node.line, why),) for name in changed})
            yield from self._all(node.condition, scope)
            yield from self._all(node.body, scope)
            scope.values.update({name: (Argument(f"${name}", node.line, why),) for name in changed})
            return
        if not node.body:
            text = " ".join(word.written for word in node.words) or node.counted
            yield Broken(node.line, f"for {node.name} in {text}", "a loop without a body")
            return
        for word in node.words:
            yield from self._substituted(word, scope)
        nothing = Argument(f"${node.name}", node.line, f"the loop of line {node.line} goes over nothing that is known")
        for value in self._turns(node, scope) or [nothing]:
            if self._left < 0:
                return
            scope.values[node.name] = (value,)
            yield from self._all(node.body, scope)

    def _turns(self, node: Loop, scope: Scope) -> list[Argument]:
        """Return the values that a loop goes over; one that cannot be read where nothing says them."""
        if node.counted:
            match = _COUNTED.fullmatch(node.counted)
            ends = (number_of(match[2], scope), number_of(match[5], scope)) if match else ("", "")
            if match and isinstance(ends[0], int) and isinstance(ends[1], int):
                last = ends[1] + (match[4] == "<=")
                return [
                    Argument(str(number), node.line) for number in range(ends[0], min(last, ends[0] + _MOST_COMMANDS))
                ]
            return [
                Argument(f"${node.name}", node.line, f"the loop of line {node.line} cannot be read: {node.counted}")
            ]
        found = [one for word in node.words for one in expand(word, scope)]
        return [replace(one, why=one.why and f"the loop of line {node.line}: {one.why}") for one in found]

    def _branches(self, node: Branches, scope: Scope) -> Iterator[Event]:
        """Go through every arm; a variable that they leave with different values can be read no more."""
        for condition in node.conditions:
            yield from self._all(condition, scope)
        sets_default = _sets_default(node, scope)
        before = scope.copy()
        ends: list[Scope] = [] if node.complete or sets_default else [before]
        around = self._arms
        for number, arm in enumerate(node.arms):
            inner, self._arms = before.copy(), (*around, (node.line, number))
            yield from self._all(arm, inner)
            ends.append(inner)
        self._arms = around
        scope.exported.update(*(end.exported for end in ends))
        for name in sorted({name for end in ends for name in end.values}):
            scope.values[name] = _left(name, [end.values.get(name, ()) for end in ends], node.line)


def _left(name: str, values: list[Value], line: int) -> Value:
    """Return what the arms of a branch leave in a variable: what all do, and the words that some add to a list."""
    said_by = [[(one.text, one.why) for one in value] for value in values]
    same = 0
    while all(len(one) > same and one[same] == said_by[0][same] for one in said_by):
        same += 1
    whole = values[0][:same]
    if all(len(value) == same for value in values):
        return whole
    if whole:
        added = dict.fromkeys(one for value in values for one in value[same:])
        return (*whole, *(replace(one, why=one.why or f"a branch of line {line} adds it") for one in added))
    said = ", ".join(sorted({one.text for value in values for one in value}))
    return (Argument(f"${name}", line, f"the branches of line {line} decide {name}: {said}"),)


def _changed(name: str, given: tuple[Argument, ...], scope: Scope) -> Argument:
    """Return the folder that a script is in behind ``cd`` and its like, from the one that it began in."""
    target = next((one for one in given if one.text == "-" or not one.text.startswith("-")), None)
    before = next(iter(scope.values.get(FOLDER, ())), None)
    if name == "popd" or target is None or target.why or target.text.startswith(("-", "~")):
        return Argument("", 0, "a folder that the script does not say")
    if target.text.startswith("/") or before is None:
        return target
    return replace(target, text=f"{before.text}/{target.text}", why=before.why)


def _sets_default(node: Branches, scope: Scope) -> bool:
    """Whether the branch is taken because nothing sets the variable that it asks for (``if [ -z "$X" ]``)."""
    if len(node.arms) != 1 or len(node.conditions) != 1:
        return False
    words = [word.written for one in node.conditions[0] if isinstance(one, Command) for word in one.words]
    match = _EMPTY.fullmatch(" ".join(words[1:-1])) if words[:1] in (["["], ["[["]) else None
    return match is not None and match[1] not in scope.values


def _assigned(body: tuple[Node, ...]) -> set[str]:
    """Return the variables that commands set."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, Command):
            pairs = (re.match(r"([A-Za-z_]\w*)\+?=", word.written) for word in node.words)
            found |= {match[1] for match in pairs if match}
            found |= {FOLDER for word in node.words[:1] if word.plain in _CHANGES_FOLDER}
        elif isinstance(node, Branches):
            found |= {name for arm in (*node.arms, *node.conditions) for name in _assigned(arm)}
        elif isinstance(node, Loop | Group | Function):
            found |= _assigned(node.body)
    return found
