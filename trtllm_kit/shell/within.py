"""Scripts within a script: the text that a shell is given, and what a command writes into a file (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from trtllm_kit.light import dataclass
from trtllm_kit.shell.values import Argument, Scope
from trtllm_kit.shell.walk import SHELLS, Called
from trtllm_kit.shell.words import Here

SAYS = frozenset({
    "echo", "printf", "cat", "grep", "ls", "which", "test", "[", "[[", "alias", "type", "cp", "mv", "rm", "ln", "chmod",
    "chown", "mkdir", "touch", "tar", "sed", "awk", "wget", "curl", "git", "rsync", "scp", "diff", "less", "head",
    "tail", "apt", "apt-get", "pip", "pip3", "kill", "pkill", "pgrep", "killall", "cd",
})  # fmt: skip
"""Programs to which the name of another one is but a word."""


@dataclass(frozen=True)
class Within:
    """One script within another."""

    text: str
    line: int
    """Line of its first line."""
    scope: Scope


def text_for_shell(words: Sequence[Argument]) -> tuple[int, int] | None:
    """Return the places of the shell and of the text in ``bash -c text``, whatever starts it; None without one."""
    shells = (at for at, one in enumerate(words) if PurePosixPath(one.text).name in SHELLS)
    return next(((at, place) for at in shells if (place := _text_behind(words, at)) is not None), None)


def _text_behind(words: Sequence[Argument], shell: int) -> int | None:
    """Return the place behind ``-c`` among the options of a shell; None where a file's name comes first."""
    takes_name = False
    for number in range(shell + 1, len(words) - 1):
        option = words[number].text
        if not option.startswith(("-", "+")):
            if not takes_name:
                return None
        elif option.endswith("c") and not option.startswith("--"):
            return number + 1
        takes_name = option.endswith("o")  # -o pipefail
    return None


def target_of(event: Called) -> str:
    """Return the file that a command writes to, as far as its words say it; else its first word that may be one."""
    names = [one.text.rpartition("/")[2] for one in event.arguments]
    return next((name for name in (*event.targets, *names[1:]) if not name.startswith("-")), "")


def written_script(here: Here, event: Called) -> Within | None:
    """Return the script that a text of a command is, by its file's name or its first line; None for another text."""
    if event.arguments and PurePosixPath(event.arguments[-1].text).name in (*SHELLS, "-s"):
        return None  # it is handed to a shell, and the walk went through it
    if not target_of(event).endswith((".sh", ".bash")) and not here.text.startswith("#!"):
        return None
    scope = event.scope.copy() if here.expands else Scope(used=event.scope.used)
    return Within(here.text.replace("\\$", "$") if here.expands else here.text, here.line, scope)


def written_scripts(event: Called) -> Iterator[Within]:
    """Yield the scripts that a command writes."""
    yield from (found for here in event.heres if (found := written_script(here, event)) is not None)
