"""Reads shell text: each command of the engine backend, the variables around it, texts that it writes (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.found import Setting, Unread, Where
from trtllm_kit.migrate.reading.named import Named
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.migrate.reading.program_settings import environment, is_set_for_the_server
from trtllm_kit.migrate.reading.programs import Begun, Text, is_program, mentions, read_words
from trtllm_kit.shell.values import Argument, Scope
from trtllm_kit.shell.walk import Called, Event, Exported, Load, walk
from trtllm_kit.shell.within import target_of, written_script
from trtllm_kit.shell.words import Broken, Here

Said = Setting | Unread | Named | Begun
_MOST_LEVELS = 6
_DOCUMENT = re.compile(r"\.(ya?ml|json)$")
_MANIFEST = re.compile(r"^apiVersion:", re.MULTILINE)


@dataclass(frozen=True)
class Shell:
    """What is the same for a whole script."""

    file: str
    version: str = ""
    load: Load | None = None
    manifest: Callable[[str, int], Iterator[Said]] | None = None
    """Reads a Kubernetes manifest that the script holds, from the given line on."""


def read_shell(text: str, shell: Shell, scope: Scope | None = None, line: int = 1) -> Iterator[Said]:
    """Yield what a script says, in its order; ``line`` is the number of its first line."""
    scope = scope if scope is not None else Scope()
    exported: list[Exported] = []
    yield from _events(text, shell, scope, line, exported, 0)
    yield from _exported(exported, shell.file, scope)


def _events(text: str, shell: Shell, scope: Scope, line: int, exported: list[Exported], level: int) -> Iterator[Said]:
    for event in walk(text, scope, line, shell.load):
        if isinstance(event, Exported):
            exported.append(event)
        else:
            yield from _event(event, shell, exported, level)


def _event(event: Event, shell: Shell, exported: list[Exported], level: int) -> Iterator[Said]:
    if isinstance(event, Broken):
        yield unread(Where(shell.file, event.line), event.text, event.why)
    elif isinstance(event, Called):
        for said in _called(event, shell):
            if not isinstance(said, Text):
                yield said
            elif level < _MOST_LEVELS:
                yield from _events(said.text, shell, said.scope, said.line, exported, level + 1)
            else:
                yield unread(Where(shell.file, said.line), said.text, "scripts within scripts, too deep")
        for target in event.targets:
            if target.startswith("--"):
                yield unread(Where(shell.file, event.line), target, "it is the name of a file here, behind < or >")
        for here in event.heres:
            yield from _here(here, event, shell, exported, level)


def _called(event: Called, shell: Shell) -> Iterator[Said | Text]:
    """Yield what one command says, and the variables that are set for it alone."""
    found = list(read_words(event.arguments, event.scope, shell.file, shell.version))
    if any(not isinstance(one, Named) for one in found):
        yield from (
            environment(Argument(f"{name}={value.text}", value.line, value.why), shell.file)
            for name, value in event.own.items()
        )
    yield from found
    printed = event.arguments and event.arguments[0].text in ("echo", "printf") and event.targets
    if printed:
        for one in event.arguments[1:]:
            if mentions(one.text):
                yield unread(Where(shell.file, one.line), one.text, f"the script writes it into {event.targets[0]}")


def _here(here: Here, event: Called, shell: Shell, exported: list[Exported], level: int) -> Iterator[Said]:
    """Yield what a text says that the script writes into a file or hands to a program."""
    names = [one.text.rpartition("/")[2] for one in event.arguments]
    target, script = target_of(event), written_script(here, event)
    where = Where(shell.file, here.line)
    if names and names[-1] in ("bash", "sh", "-s"):
        return  # the walk went through it
    if _MANIFEST.search(here.text) and shell.manifest is not None:
        yield from shell.manifest(here.text, here.line)
    elif script is not None:
        if level < _MOST_LEVELS:
            yield from _events(script.text, shell, script.scope, script.line, exported, level + 1)
    elif _DOCUMENT.search(target):
        yield unread(
            where, _begin(here.text), f"a document that the script writes into {target}: give it to trtkit by itself"
        )
    elif any(is_program(word.rpartition("/")[2]) for word in here.text.split()):
        yield unread(
            where, _begin(here.text), f"text for {target or 'a program'} that names programs of the engine backend"
        )


def _begin(text: str) -> str:
    """Return the first line of a text."""
    lines = text.split("\n")
    return lines[0] if len(lines) == 1 else f"{lines[0]} (and {len(lines) - 1} lines)"


def _exported(exported: list[Exported], file: str, scope: Scope) -> Iterator[Said]:
    """Yield the variables that every program sees; those that only the script's own words use are no settings."""
    for one in exported:
        if is_set_for_the_server(one.name, one.value.text, scope.used):
            yield environment(Argument(f"{one.name}={one.value.text}", one.line, one.value.why), file)
