"""Garbage collection, which a verb of a fraction of a second does without."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Leave cycles uncollected meanwhile: what the verb imports and makes lives to its end, and is searched in vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
