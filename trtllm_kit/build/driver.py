"""Which class of GPU driver an engine is built under: the branch of the driver, which is the first number it has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trtllm_kit.errors import UsageError

VARIABLE = "TRTKIT_DRIVER_CLASS"
"""Names the class where the builder runs on another machine than trtkit."""
NO_DRIVER = "none"
_VERSION = Path("/proc/driver/nvidia/version")
_NUMBER = re.compile(r"\b(\d{3,4})\.\d+")
_CLASS = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


def driver_class(version_file: Path = _VERSION) -> str:
    """Return the driver's branch, e.g. ``580``, or ``none`` without a driver of NVIDIA's; ``VARIABLE`` has the word.

    Raises ``UsageError`` for a variable that is no such word.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        if not _CLASS.fullmatch(named):
            raise UsageError(
                f"{VARIABLE}={named} names no class of drivers",
                why="it has up to 32 small letters, digits, dots, dashes and underscores, as in 580",
                hint=f"export {VARIABLE}=580, or unset it",
            )
        return named
    try:
        found = _NUMBER.search(version_file.read_text("utf-8", errors="replace"))
    except OSError:
        return NO_DRIVER
    return found[1] if found else NO_DRIVER
