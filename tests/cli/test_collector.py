"""Garbage collection paused for a short verb."""

from __future__ import annotations

import contextlib
import gc

import pytest

from trtllm_kit.cli.collector import paused


@pytest.mark.parametrize("was", [True, False])
def test_the_collector_is_off_inside_and_afterwards_as_it_was(was: bool) -> None:
    """A verb called by another one leaves the collector as it found it, also after an error."""
    before = gc.isenabled()
    (gc.enable if was else gc.disable)()
    try:
        with contextlib.suppress(KeyError), paused():
            inside = gc.isenabled()
            {}["absent"]
        assert (False, was) == (inside, gc.isenabled())
    finally:
        (gc.enable if before else gc.disable)()
