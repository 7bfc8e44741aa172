"""What a toolchain does, as data: steps that write a file, link an input or run a program."""

from __future__ import annotations

import re
import shlex
from typing import Literal

from pydantic import BaseModel, ConfigDict

PYTHON = "{python}"
"""Stands in an argv for the Python interpreter that runs trtkit."""
ENGINE, CHECKPOINT_PLACE, DRAFT_PLACE, OWN_NUMBER = "{engine}", "{checkpoint}", "{draft}", "{number}"
"""Stand in the words of an argv for the engine folder, the inputs, and a number no other running build has."""
_PLAIN = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)
"""Words that a shell takes as they are, with our placeholders."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WriteFile(_Frozen):
    """Write a UTF-8 file into the engine folder."""

    path: str
    """Relative to the engine folder, as every path of a step."""
    text: str

    def subject(self) -> str:
        """Say in a few words what the step does."""
        return f"{self.path} ({len(self.text.encode()):,} bytes)"


class Link(_Frozen):
    """Point a relative symbolic link at an input. A link is no file of the manifest; its target's digest is."""

    path: str
    to: Literal["checkpoint", "draft"]

    def subject(self) -> str:
        """Say in a few words what the step does."""
        return f"{self.path} -> the {self.to}"


class Run(_Frozen):
    """Run a program in the engine folder; it must leave every output."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    """Variables beyond those of trtkit's own environment."""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    timeout_seconds: float
    afterwards: tuple[str, ...] = ()
    """Command that ends what outlives the program's own processes (a container); empty when nothing does."""
    release: str | None = None
    """Release whose known messages the output is read for; None for programs of ours."""

    def subject(self) -> str:
        """Say in a few words what the step does."""
        return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in self.argv)


Step = WriteFile | Link | Run
