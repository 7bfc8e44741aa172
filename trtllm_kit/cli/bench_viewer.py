"""The program that draws a run while it goes on: reads a line a second, and shows the whole screen anew.

It is a process of its own, because drawing in the client's would make the client late. It ends, and gives the
terminal back, when its input does. ``python -m trtllm_kit.cli.bench_viewer TITLE``.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from trtllm_kit.bench.live import View, read_glance


def main(title: str) -> None:
    """Show what comes on stdin until it ends."""
    view = View(title)
    console = Console(file=sys.stderr, force_terminal=True)
    with Live(_screen(view), console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
        for line in sys.stdin:
            try:
                view.take(read_glance(line))
            except ValueError:  # a line that was cut
                continue
            live.update(_screen(view), refresh=True)


def _screen(view: View) -> Text:
    first, *others = view.rows()
    text = Text(first, style="bold", no_wrap=True, overflow="ellipsis")
    text.append("\n\n" + "\n".join(others), style="not bold")
    return text


if __name__ == "__main__":
    main(sys.argv[1])
