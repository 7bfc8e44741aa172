"""The server's log: which lines say something, which are noise of every start, and which one is the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

TAIL_LINES = 12
_TAIL_BYTES = 256 << 10
_WIDTH = 240
_HARMLESS = (
    "CudaDriverHelper has not been initialized",
    "Unable to allocate pinned system memory",
    "Failed to initialize NVML",
    "DCGM unable to start",
    "CUDA driver version is insufficient",
)
"""What Triton says on every machine without a GPU."""
_ROUTINE = re.compile(r"I\d{4} |\| |\+--")
"""Information lines and the tables Triton draws at its start."""
_TRITON_LINE = re.compile(r'[EW]\d{4} \S+ \d+ \S+\] "(?P<text>.*)"')
_PROTOBUF_LINE = re.compile(r"\[libprotobuf ERROR \S+\] (?P<text>.*)")
_OPENING = re.compile(
    r"(ERROR: Failed to create instance: |failed to load '.*?' version \d+: \w+: )(TritonModelException: )?"
)


def tail(path: Path, count: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of a log that say something, each cut to a readable width."""
    return tuple(line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ..." for line in said(_last_lines(path))[-count:])


def reason(path: Path) -> str | None:
    """Return in plain words why the server went away, as its log tells; None when it tells nothing."""
    lines = said(_last_lines(path))
    for form in (_PROTOBUF_LINE, _TRITON_LINE):
        for line in lines:
            if line[0] != "W" and (match := form.fullmatch(line)):
                return _plain(match["text"])
    return lines[-1] if lines else None


def said(lines: Iterable[str]) -> list[str]:
    """Leave out what every start says: information, tables, empty lines, and the lack of a GPU."""
    return [
        line.rstrip().expandtabs(4)
        for line in lines
        if line.strip() and not _ROUTINE.match(line) and not any(noise in line for noise in _HARMLESS)
    ]


def _plain(text: str) -> str:
    """Take a model's own words out of Triton's: no opening, no Python stack, on one line."""
    words = _OPENING.sub("", text).split("\\n\\nAt:")[0]
    return "; ".join(part.strip() for part in words.split("\\n") if part.strip())


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
