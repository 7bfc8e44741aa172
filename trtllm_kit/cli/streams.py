"""Stdout and stderr, each of which may be closed, full, left by its reader, or unable to show a letter."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from trtllm_kit.errors import storage_error


def say(text: str, end: str = "\n") -> bool:
    """Write to stdout at once; returns whether somebody reads it.

    A reader that went away changes no exit code, and ends only a verb that would go on for ever.
    Raises ``StorageError`` when the output cannot be written, as on a full disk.
    """
    if sys.stdout is None:  # closed by whoever started us
        return False
    try:
        _write(sys.stdout, text + end)
    except BrokenPipeError:
        _silence(sys.stdout)
        return False
    except OSError as error:
        _silence(sys.stdout)
        raise storage_error(error, "writing the result to stdout") from None
    return True


def to_stderr(text: str, end: str = "\n") -> None:
    """Write to stderr at once; when that cannot be done there is nobody left to tell."""
    if sys.stderr is None:
        return
    try:
        _write(sys.stderr, text + end)
    except OSError:
        _silence(sys.stderr)


def paint(text: str, colour: str, stream: Any = None) -> str:
    """Colour text for a terminal; plain elsewhere."""
    return f"\033[{colour}m{text}\033[0m" if is_terminal(stream or sys.stdout) else text


def is_terminal(stream: Any) -> bool:
    """Whether a standard stream is a terminal; one that was closed before we started is None."""
    return stream is not None and stream.isatty()


def holds_every_letter(stream: TextIO | None) -> bool:
    """Whether a stream's encoding can hold every letter; C locales may have one that cannot."""
    return stream is None or (stream.encoding or "utf-8").lower().replace("_", "-") == "utf-8"


def _write(stream: TextIO, text: str) -> None:
    """Write what the stream's encoding cannot hold as escapes."""
    name = stream.encoding or "utf-8"
    stream.write(text.encode(name, errors="backslashreplace").decode(name))
    stream.flush()


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
