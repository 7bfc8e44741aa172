"""All problems of an input at once, in the three-line form of one error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtllm_kit.errors import KitError

_SHOWN = 6


def raise_all(problems: Sequence[KitError], folder: Path) -> None:
    """Raise nothing for no problem, the problem itself for one, and one error that lists them for more.

    The class and the hint are the first problem's, since the first is the nearest to the cause.
    """
    if not problems:
        return
    first = problems[0]
    if len(problems) == 1:
        raise first
    shown = "; ".join(f"{problem.what}: {problem.why}" for problem in problems[:_SHOWN])
    rest = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise type(first)(f"{len(problems)} problems with the weights in {folder}", why=shown + rest, hint=first.hint)
