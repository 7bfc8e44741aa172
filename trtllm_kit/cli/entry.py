"""Where ``trtkit`` begins: a check that was asked for before goes the short way, all else to the command line.

What cron runs every minute should not wait for a command line of all verbs. The short way reads the same options,
judges by the same code and prints through the same functions; what is not plainly right goes the long way.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False  # of ``typing``, which a check need not import for this
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

WATCHDOG = "check-health"
UNKNOWN = 3


def main() -> None:
    """Run the command line and exit with its code."""
    words = sys.argv[1:]
    if WATCHDOG in words[:2] and "_TRTKIT_COMPLETE" not in os.environ and "--debug" not in words:
        words.remove(WATCHDOG)
        gc.disable()  # nothing that is made here is worth collecting in the time that a check takes
        code = _short_way(words)
        if code is not None:
            os._exit(code)  # everything is written; taking the interpreter apart takes longer than parsing a page
        gc.enable()
    from trtllm_kit.cli.app import main as long_way

    long_way()


def _short_way(words: list[str]) -> int | None:
    """Check the short way; None where the long way has to, which is also told of whatever goes wrong here."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)
    try:
        from trtllm_kit.cli.short_check import short_check

        return short_check(words)
    except KeyboardInterrupt:
        os.write(1, b"TRTKIT UNKNOWN: the check was ended by a signal\n")
        return UNKNOWN
    except Exception:
        return None


def _ended(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
