"""Looks for the programs that a deployment needs, and for Python environments that have TensorRT-LLM."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trtllm_kit.doctor.ask import Ask, ask, ask_program
from trtllm_kit.doctor.facts import Environment, Program, Unread

PACKAGES = (
    "tensorrt-llm",
    "tensorrt",
    "tensorrt-cu12",
    "tensorrt-cu13",
    "torch",
    "nvidia-modelopt",
    "transformers",
    "numpy",
    "nvidia-pytriton",
)
PROGRAMS = {"mpirun": ("--version",), "docker": ("--version",), "podman": ("--version",), "nvidia-ctk": ("--version",)}
"""Programs whose version is asked, and how."""
TRITON = ("/opt/tritonserver/bin/tritonserver",)
TRITON_VERSION = Path("/opt/tritonserver/TRITON_VERSION")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[a-z]+\d+)?")
_MOST_PYTHONS = 12
Which = Callable[[str], str | None]


def read_software(
    pythons: Sequence[str] = (), run: Ask = ask, which: Which = shutil.which
) -> tuple[list[Program], list[Environment], list[Unread]]:
    """Return the programs and environments that there are, and what did not answer."""
    unread: list[Unread] = []
    programs = [program for name in PROGRAMS if (program := _program(name, run, which, unread))]
    triton = which("tritonserver") or next((path for path in TRITON if Path(path).exists()), None)
    if triton is not None:
        programs.append(Program("tritonserver", triton, _triton_version()))
    environments = []
    for python in _pythons(pythons, which):
        versions, why = ask_program("versions.py", *PACKAGES, python=python, run=run)
        if why:
            unread.append(Unread(f"the environment of {python}", why))
        elif versions or python in pythons:
            environments.append(Environment(python, versions))
    return programs, environments, unread


def _program(name: str, run: Ask, which: Which, unread: list[Unread]) -> Program | None:
    path = which(name)
    if path is None:
        return None
    answer = run(path, *PROGRAMS[name])
    if answer.why:
        unread.append(Unread(f"the version of {name}", answer.why))
        return Program(name, path)
    found = _VERSION.search(answer.out)
    return Program(name, path, found[0] if found else None)


def _triton_version() -> str | None:
    try:
        return TRITON_VERSION.read_text("ascii").strip()[:40] or None
    except (OSError, ValueError):
        return os.environ.get("TRITON_SERVER_VERSION")


def _pythons(asked: Sequence[str], which: Which) -> Iterator[str]:
    """Yield interpreters once each: those asked for, this one, an active environment's, those on the path."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    on_path = [which(name) for name in ("python3", "python")]
    every = [*asked, sys.executable, f"{active}/bin/python" if active else None, *on_path]
    seen: set[str] = set()
    for python in [one for one in every if one][:_MOST_PYTHONS]:
        folder = str(Path(python).parent.resolve())
        if python in asked or (folder not in seen and Path(python).exists()):
            seen.add(folder)
            yield python
