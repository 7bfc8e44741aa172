"""The server's log: which lines say something, and which are noise of every start without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TAIL_LINES = 12
_TAIL_BYTES = 256 << 10
_HARMLESS = (
    "CudaDriverHelper has not been initialized",
    "Unable to allocate pinned system memory",
    "Failed to initialize NVML",
    "DCGM unable to start",
    "CUDA driver version is insufficient",
    "CUDA memory pool disabled",
    "Cannot get CUDA driver version",
    "Error getting system memory",
)
_TELLING = ("TritonModelException", "Exception", "Error", "error:", "failed", "already in use", "unable to", "Signal (")
_DECORATION = ("+---", "| ", "I1", "I0")


def tail(path: Path, count: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of a log without the harmless ones; empty when there is no log."""
    return tuple(said(_last_lines(path))[-count:])


def reason(path: Path) -> str | None:
    """Return the line of a log that best tells why the server went away, if one does."""
    lines = said(_last_lines(path))
    for word in _TELLING:
        for line in lines:
            if word in line and not line.startswith(_DECORATION):
                return line.strip()
    return None


def said(lines: Iterable[str]) -> list[str]:
    """Leave out empty lines and the noise of a machine without a GPU."""
    return [line.rstrip() for line in lines if line.strip() and not any(noise in line for noise in _HARMLESS)]


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
