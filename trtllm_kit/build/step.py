"""What a toolchain does, as data: steps that write a file, link an input or run a program."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

PYTHON = "{python}"
"""Stands in an argv for the Python interpreter that runs trtkit."""


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
    to: Literal["checkpoint"]

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

    def subject(self) -> str:
        """Say in a few words what the step does."""
        return " ".join(self.argv)


Step = WriteFile | Link | Run
