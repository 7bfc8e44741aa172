"""Shows a run while it goes on: the whole screen of a terminal, a plain line a second elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trtllm_kit import child
from trtllm_kit.cli.streams import is_terminal

if TYPE_CHECKING:
    from trtllm_kit.bench.live import Glance
    from trtllm_kit.cli.session import Session

_END_SECONDS = 3.0
"""How long the drawing may take to give the terminal back."""


@contextmanager
def shown(session: Session, title: str, *, live: bool = True) -> Iterator[Callable[[Glance], None]]:
    """Give what a run tells of itself to; ``live`` false keeps to plain lines on a terminal too."""
    if not (live and is_terminal(sys.stderr) and not session.outlet.unattended and os.environ.get("TERM") != "dumb"):
        yield lambda glance: session.log(glance.words)
        return
    argv = [sys.executable, "-m", "trtllm_kit.cli.bench_viewer", title]
    viewer = child.start(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=sys.stderr.fileno())
    pipe = viewer.stdin
    assert pipe is not None  # noqa: S101  # it was asked for
    os.set_blocking(pipe.fileno(), False)

    def tell(glance: Glance) -> None:
        session.outlet.note("info", glance.words)
        with contextlib.suppress(OSError):  # a viewer that is slow or gone holds nothing up
            os.write(pipe.fileno(), (glance.line() + "\n").encode())

    try:
        yield tell
    finally:
        with contextlib.suppress(OSError):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            viewer.wait(_END_SECONDS)
        child.end(viewer)
