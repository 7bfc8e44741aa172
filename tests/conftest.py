"""Fixtures every room shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of recorded upstream material beside the checkout; skip loudly without it."""
    folder = Path(os.environ.get("TRTKIT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"SKIPPED FOR LACK OF DATA: no folder {folder}; set TRTKIT_SHARED to run these")
    return folder
