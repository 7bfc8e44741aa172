"""Runs the programs of ``quantize_worker`` in another environment: what it has, what they tell, how they end."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from packaging.version import InvalidVersion, Version

from trtllm_kit.child import end, start
from trtllm_kit.errors import MissingExtra, StorageError, WorkerFailed
from trtllm_kit.printable import printable
from trtllm_kit.progress import Progress
from trtllm_kit.resources import package_file
from trtllm_kit.strict_json import parse_json
from trtllm_kit.units import format_bytes, format_seconds

PYTHON_VARIABLE = "TRTKIT_QUANTIZE_PYTHON"
"""Environment variable that names the interpreter when the profile does not."""
SILENT_SECONDS = 3600.0
"""A worker that tells nothing for so long is stopped: no piece of a model's export takes an hour."""
_PROBE_SECONDS = 300.0
_TAIL_LINES, _TAIL_BYTES, _LINE_BYTES = 6, 4096, 1 << 20
MODELOPT = {"nvidia-modelopt": "0.47", "torch": "2.8", "transformers": "4.56"}
"""What the workers were written for and tested with."""


@dataclass(frozen=True)
class Tools:
    """An environment that can do the work, and what of it the bytes depend on."""

    python: str
    versions: Mapping[str, str]
    device: str
    """``cpu`` or ``cuda``."""
    gpu: str = ""
    """Name of the first GPU."""
    gpu_bytes: int = field(default=0, compare=False)
    """Memory of all GPUs."""

    @property
    def identity(self) -> dict[str, str]:
        """What other bytes could come from: versions, device."""
        return {**self.versions, "device": self.gpu or self.device}


def interpreter(asked: str | None) -> str:
    """Return the interpreter that is meant: the profile's, the variable's, or the running one."""
    return asked or os.environ.get(PYTHON_VARIABLE) or sys.executable


def find_tools(python: str, least: Mapping[str, str] | None = None) -> Tools:
    """Ask an interpreter what it has; raises ``MissingTool`` without it, ``MissingExtra`` with everything it lacks."""
    wanted = MODELOPT if least is None else least
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        argv = [python, "-I", str(package_file("quantize_worker", "probe.py")), *wanted]
        child = start(argv, stdout=said, stderr=errors)
        try:
            code = child.wait(_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            end(child)
        if code != 0:
            raise WorkerFailed(
                f"{python} does not run Python programs",
                why=f"it exited with {code}; its last words: {_tail(errors)}",
                hint="set calibration.python to the interpreter of the environment that has nvidia-modelopt",
            )
        said.seek(0)
        found = parse_json(said.read())
    lacking = [*_lacking(found["versions"], wanted)]
    if "torch_error" in found and found["versions"].get("torch"):
        lacking.append(f"torch cannot be imported ({found['torch_error']})")
    if lacking:
        raise MissingExtra(
            f"{python} cannot run NVIDIA ModelOpt",
            why="; ".join(lacking),
            hint="pip install 'trtllm-kit[quantize]' into an environment of its own, and set calibration.python (or "
            f"{PYTHON_VARIABLE}) to its interpreter",
        )
    return Tools(python, found["versions"], found["device"], found["gpu"], found["gpu_bytes"])


def memory_of(tools: Tools) -> int:
    """Return the bytes that a model can lie in: of this machine, or of all GPUs where those are more."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), tools.gpu_bytes)


def require_memory(before: int, after: int, had: int, width: str, instead: str) -> None:
    """Raise ``StorageError`` when nothing here can hold a model's bytes beside those of its result (PF14)."""
    if before + after > had:
        raise StorageError(
            "this machine has too little memory for NVIDIA ModelOpt with this model",
            why=f"{format_bytes(before)} in {width} + {format_bytes(after)} of the result, without activations; "
            f"{format_bytes(had)} here",
            hint=f"convert on a machine with more memory{instead}",
        )


def _lacking(versions: Mapping[str, str | None], wanted: Mapping[str, str]) -> Iterator[str]:
    for name, least in wanted.items():
        version = versions.get(name)
        if version is None:
            yield f"{name} is not installed"
        elif _older(version, least):
            yield f"{name} is {version}, and {least} or later is needed"


def _older(version: str, least: str) -> bool:
    try:
        return Version(version) < Version(least)
    except InvalidVersion:
        return False  # a build of one's own; the worker will tell


def run_worker(
    tools: Tools, program: str, request: Mapping[str, Any], progress: Progress, silent_seconds: float = SILENT_SECONDS
) -> dict[str, Any]:
    """Run a program of ``quantize_worker`` on a request and return its result; raises ``WorkerFailed``."""
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
        asked.write(json.dumps(request).encode())
        asked.seek(0)
        argv = [tools.python, "-I", str(package_file("quantize_worker", program))]
        child = start(argv, stdin=asked, stdout=subprocess.PIPE, stderr=errors)
        try:
            result = _follow(child, progress, silent_seconds)
            code = child.wait(silent_seconds)
        except (_Silent, subprocess.TimeoutExpired):
            raise _failed(
                tools, errors, f"it told nothing for {format_seconds(silent_seconds)} and was stopped"
            ) from None
        except ValueError as error:
            raise _failed(tools, errors, f"it wrote a line that is not its own ({error})") from None
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        if code != 0 or result is None:
            raise _failed(tools, errors, f"it exited with {code}")
    return result


class _Silent(Exception):
    """The worker told nothing for too long."""


def _follow(child: subprocess.Popen[bytes], progress: Progress, silent_seconds: float) -> dict[str, Any] | None:
    """Show what the worker tells until it closes its output; return its result."""
    result: dict[str, Any] | None = None
    begun = False
    for line in _lines(child, silent_seconds):
        told = parse_json(line)
        if not isinstance(told, dict):
            raise ValueError("no object")
        if "phase" in told:
            if begun:
                progress.finish()
            progress.start(printable(str(told["phase"])), float(told["total"]), str(told.get("unit", "steps")))
            begun = True
        elif "done" in told:
            progress.advance(float(told["done"]))
        elif isinstance(told.get("result"), dict):
            result = told["result"]
    if begun:
        progress.finish()
    return result


def _lines(child: subprocess.Popen[bytes], silent_seconds: float) -> Iterator[bytes]:
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    left = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + silent_seconds
        while selector.select(max(deadline - time.monotonic(), 0)):
            piece = os.read(child.stdout.fileno(), _LINE_BYTES)
            if not piece:
                return
            *whole, left = (left + piece).split(b"\n")
            if len(left) > _LINE_BYTES:
                raise ValueError("a line without end")
            yield from whole
            deadline = time.monotonic() + silent_seconds
    raise _Silent


def _failed(tools: Tools, errors: IO[bytes], why: str) -> WorkerFailed:
    return WorkerFailed(
        "NVIDIA ModelOpt did not finish",
        why=f"{why}; its last words: {_tail(errors)}",
        hint=f"look whether {tools.python} has the memory and the packages for this model",
    )


def _tail(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(size - _TAIL_BYTES, 0))
    lines = errors.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    return printable(" / ".join(line.strip() for line in lines if line.strip())) or "none"
