"""Fixtures every room shares."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background so, and programs that the tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``: after a wanted change, run it on the tests that compare, and read the diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite what stands in tests/golden from this code")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of recorded upstream material beside the checkout; skip loudly without it."""
    folder = Path(os.environ.get("TRTKIT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"SKIPPED FOR LACK OF DATA: no folder {folder}; set TRTKIT_SHARED to run these")
    return folder
