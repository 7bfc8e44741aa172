"""Record a command in a pseudo-terminal and write what it showed as an SVG.

python docs/picture.py docs/quickstart.svg trtkit quickstart
"""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 110
_REMOTE_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_REWRITTEN_LINE = re.compile(r"[^\n]*\r\x1b\[K")
_SCREEN = re.compile(r"\x1b\[\?1049h(.*?)\x1b\[\?1049l", re.DOTALL)
"""What was shown on the whole screen; each frame begins at its upper left corner."""


def main() -> int:
    """Record argv[2:] and write the picture to argv[1]; returns the command's exit code."""
    target, command = Path(sys.argv[1]), sys.argv[2:]
    status, shown = record(command)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    typed = " ".join([Path(command[0]).name, *command[1:]])
    console.print(Text.from_ansi(f"$ {typed}\n{shown}"))
    svg = console.export_svg(title=typed)
    target.write_text(_REMOTE_FONT.sub("", svg), encoding="utf-8")
    return status


def record(command: list[str]) -> tuple[int, str]:
    """Run a command on a terminal of COLUMNS columns; return its exit code and all it showed."""
    chunks: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 1 << 16)
        chunks.append(data)
        return data

    os.environ |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    status = os.waitstatus_to_exitcode(pty.spawn(command, read))
    text = b"".join(chunks).decode("utf-8", "replace").replace("\r\n", "\n")
    return status, _REWRITTEN_LINE.sub("", _SCREEN.sub(_last_frame, text))


def _last_frame(screen: re.Match[str]) -> str:
    """Return the last frame of a screen that was drawn anew and anew, without what hides and shows the cursor."""
    lines = re.sub(r"\x1b\[\?\d+[hl]", "", screen[1].rpartition("\x1b[H")[2]).split("\n")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n\n"


if __name__ == "__main__":
    sys.exit(main())
