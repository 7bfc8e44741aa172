"""Runs a program and takes what it prints, within a time and a size; a program that is not there is an answer too."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from trtllm_kit.child import end, start
from trtllm_kit.errors import MissingTool
from trtllm_kit.light import dataclass
from trtllm_kit.resources import package_file
from trtllm_kit.strict_json import parse_json

SECONDS = 20.0
MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Answer:
    """What a program printed, or why there is nothing."""

    out: str = ""
    why: str = ""
    """Empty where it ended well."""
    missing: bool = False
    """Whether there is no such program."""


Ask = Callable[..., Answer]
"""``ask(program, *arguments)``: how probes reach programs, so that tests can answer in their place."""


def ask(*argv: str, seconds: float = SECONDS) -> Answer:
    """Run a program to its end; it is killed with all it started when the time is up."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            child = start(argv, stdout=out, stderr=errors, env={"LC_ALL": "C"})
        except MissingTool:
            return Answer(why=f"there is no {argv[0]} here", missing=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return Answer(why=f"{argv[0]} did not answer in {seconds:g} s")
        finally:
            end(child)
        said, complaint = _read(out), _read(errors)
    if code != 0:
        words = (complaint or said).strip().splitlines()
        return Answer(said, f"{argv[0]} exited with {code}: {words[-1][:200] if words else 'it said nothing'}")
    return Answer(said)


def _read(file: Any) -> str:
    file.seek(0, os.SEEK_SET)
    return bytes(file.read(MOST_BYTES)).decode("utf-8", "replace")


def ask_program(
    name: str, *arguments: str, python: str = sys.executable, run: Ask = ask, seconds: float = SECONDS
) -> tuple[Mapping[str, Any], str]:
    """Run a program of ``doctor_worker``; returns the object it printed, and why there is none or an empty text."""
    answer = run(python, "-I", str(package_file("doctor_worker", name)), *arguments, seconds=seconds)
    if answer.why:
        return {}, answer.why
    found: Any = None
    with contextlib.suppress(ValueError, json.JSONDecodeError):
        found = parse_json(answer.out.encode())
    if not isinstance(found, dict):
        return {}, f"{name} answered with something else than an object"
    return found, str(found.get("error", ""))
