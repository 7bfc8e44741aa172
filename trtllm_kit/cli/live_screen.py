"""A terminal that shows one text over and over, fits it to its size, and is as before when it ends.

While it is shown the terminal's other screen is used and the cursor hidden; at the end, an interrupt included, both are
undone and the last text stays. Into a pipe, or on a terminal that knows no such codes, each text stands below the last.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from trtllm_kit.cli.streams import is_terminal, say

_ENTER, _LEAVE, _CLEAR = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l", "\033[H\033[2J"
_LOOK_SECONDS = 0.1
"""How often a pause looks whether the terminal has another size."""
_COLOUR = re.compile(r"\033\[[0-9;]*m")


class LiveScreen:
    """What ``watch`` draws on; ``plain`` uses no screen, whatever stdout is."""

    def __init__(self, *, plain: bool = False) -> None:
        self._live = not plain and is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb"
        self._make: Callable[[], str] | None = None
        self._resized = False
        self.is_read = True
        """False when whoever read what stands below each other has gone."""
        self._before: Any = None

    def __enter__(self) -> Self:
        """Take the other screen."""
        if self._live:
            self._before = signal.signal(signal.SIGWINCH, self._note_size)
            say(_ENTER, end="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back as it was, with the last text on it."""
        if self._live:
            signal.signal(signal.SIGWINCH, self._before)
            say(_LEAVE, end="")
            if self._make is not None:
                say(self._make())

    def draw(self, make: Callable[[], str]) -> None:
        """Show what ``make`` returns; it is called again when the terminal has another size."""
        self._make, self._resized = make, False
        self.is_read = say(
            _CLEAR + fitted(make(), *shutil.get_terminal_size()) if self._live else make(),
            end="" if self._live else "\n",
        )

    def pause(self, seconds: float) -> None:
        """Wait, and draw anew for another size."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._resized and self._make is not None:
                self.draw(self._make)
            time.sleep(min(left, _LOOK_SECONDS))

    def _note_size(self, _number: int, _frame: FrameType | None) -> None:
        self._resized = True


def fitted(text: str, columns: int, lines: int) -> str:
    """Cut a text to a terminal of ``columns`` and ``lines``, so that nothing of it scrolls; colours take no room."""
    kept = text.split("\n")
    if len(kept) > lines:
        kept = [*kept[: max(0, lines - 1)], f"... {len(kept) - lines + 1} more lines"]
    return "\n".join(line if len(_COLOUR.sub("", line)) <= columns else _cut(line, columns) for line in kept)


def _cut(line: str, columns: int) -> str:
    """Cut one line; where it had colours they end with it."""
    cut, shown = "", 0
    for piece in re.split(f"({_COLOUR.pattern})", line):
        if _COLOUR.fullmatch(piece):
            cut += piece
        else:
            cut += piece[: columns - shown]
            shown = min(columns, shown + len(piece))
    return cut
