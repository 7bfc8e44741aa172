"""Asks a script or Dockerfile for the commands it starts, with what is set at each; it runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from trtllm_kit.shell.dockerfile import NoInstruction, Script, Words, steps
from trtllm_kit.shell.values import FOLDER, Argument, Scope, Value
from trtllm_kit.shell.walk import Called, walk
from trtllm_kit.shell.within import SAYS, text_for_shell, written_scripts
from trtllm_kit.shell.words import Broken

STOPS = frozenset({"kill", "pkill", "pgrep", "killall", "wait"})
"""Programs behind which what ran in the background may run no more."""
_PASSED = SAYS - STOPS - {"pip", "pip3"}
"""Programs whose words no rule is asked about."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_CONTAINERS = frozenset({"docker", "podman", "kubectl", "ssh"})
"""Programs whose commands run in another place, which sees nothing of the script's."""
_MOST_LEVELS = 6
_MOST_COMMANDS = 20_000
"""Commands that are looked at, those of loops and of scripts within scripts each time that they run."""


@dataclass(frozen=True)
class Started:
    """One command with the words that it is given, and what was set before it."""

    words: tuple[str, ...]
    """A word that the script does not say stands as it is written."""
    line: int
    variables: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    """Option -> the line that it stands on, which for one of a variable is where that is set."""
    folder: str | None = None
    """Where ``cd`` before it leads; None where the script changes to no folder, or to one that nobody can read."""
    background: bool = False
    """Whether the script goes on while it runs."""
    unsaid: frozenset[str] = frozenset()
    """Those of the words whose value the script does not say: arguments, variables of its surroundings, output."""
    arms: tuple[tuple[int, int], ...] = ()
    """The branches it stands in, each with the number of its arm."""


def started(raw: bytes) -> Iterator[Started | Broken]:
    """Yield every command of a script in its order, over both sides of every branch and every turn of a loop.

    Between them stands what was not read: what cannot be taken apart, and what comes after too many commands.
    """
    yield from _started(raw.decode("utf-8", errors="replace"), Scope(), 1, _Bounds())


@dataclass(frozen=True)
class _Bounds:
    """How much is read of scripts that hold scripts."""

    left: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_COMMANDS)))
    level: int = 0


def _started(text: str, scope: Scope, line: int, bounds: _Bounds) -> Iterator[Started | Broken]:
    if bounds.level > _MOST_LEVELS:
        yield Broken(line, text.partition("\n")[0], f"a script within {_MOST_LEVELS} others")
        return
    inner = _Bounds(bounds.left, bounds.level + 1)
    for event in walk(text, scope, line):
        if isinstance(event, Broken):
            yield event
        if not isinstance(event, Called):
            continue
        if next(bounds.left, None) is None:
            yield Broken(
                event.line, "", f"more than {_MOST_COMMANDS:,} commands run before it: what follows is not read"
            )
            return
        for within in written_scripts(event):
            by_itself = (0, -within.line)  # nobody knows who runs it, and where
            for one in _started(within.text, within.scope, within.line, inner):
                yield one if isinstance(one, Broken) else replace(one, arms=(by_itself, *one.arms))
        if event.arguments:
            yield from _of_event(event, inner)


def _of_event(event: Called, inner: _Bounds) -> Iterator[Started | Broken]:
    """Yield a command, or those of the text that it hands to a shell, each behind what starts the shell."""
    words = event.arguments
    if PurePosixPath(words[0].text).name in _PASSED:
        return
    found = text_for_shell(words)
    if found is None:
        yield _plain(event, words)
        return
    scope = event.scope.child()
    scope.values.update({name: (value,) for name, value in event.own.items()})
    shell, at = found
    before = words[:shell]
    if any(PurePosixPath(one.text).name in _CONTAINERS for one in before):
        scope = Scope()
    outside = _plain(event, before)
    for one in _started(words[at].text, scope, words[at].line, inner):
        if isinstance(one, Broken):
            yield one
            continue
        yield replace(
            one,
            words=(*outside.words, *one.words, *_parts_behind(words[at + 1 :])),
            background=one.background or outside.background,
            lines={**outside.lines, **one.lines},
            unsaid=one.unsaid | outside.unsaid,
            arms=(*outside.arms, *one.arms),
        )


def _parts_behind(words: tuple[Argument, ...]) -> tuple[str, ...]:
    """Return the other parts of ``mpirun a : b``."""
    texts = [one.text for one in words]
    return tuple(texts[texts.index(":") :]) if ":" in texts else ()


def _plain(event: Called, words: tuple[Argument, ...]) -> Started:
    values: dict[str, Value] = {**event.scope.values, **{name: (value,) for name, value in event.own.items()}}
    folder = next(iter(event.scope.values.get(FOLDER, ())), None)
    return Started(
        words=tuple(one.text for one in words),
        line=event.line,
        variables={name: value[0].text for name, value in values.items() if value and _NAME.fullmatch(name)},
        lines={one.text.partition("=")[0]: one.line for one in words if one.text.startswith("--")},
        folder=folder.text if folder is not None and not folder.why else None,
        background=event.background,
        unsaid=frozenset(one.text for one in words if one.why),
        arms=event.arms,
    )


def started_in_image(raw: bytes) -> Iterator[Started | Broken]:
    """Yield every command of a Dockerfile, those that build it and those that its containers start, like ``started``.

    Each instruction runs by itself, in a folder of the image.
    """
    bounds = _Bounds()
    for step in steps(raw.decode("utf-8", errors="replace"), set()):
        if isinstance(step, Script):
            found = _started(step.text, step.scope, step.line, bounds)
        elif isinstance(step, Words) and step.words:
            found = _of_event(Called(step.words, step.words[0].line, step.scope), bounds)
        elif isinstance(step, NoInstruction):
            found = iter((Broken(step.line, step.text, "no instruction of a Dockerfile"),))
        else:
            continue
        for one in found:
            yield one if isinstance(one, Broken) else replace(one, folder=None, arms=((0, -one.line), *one.arms))
