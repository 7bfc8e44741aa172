"""Each test remembers by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.health.state_file import STATE_VARIABLE


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the checks of one test a folder of their own to remember in; returns it."""
    folder = tmp_path / "state"
    monkeypatch.setenv(STATE_VARIABLE, str(folder))
    return folder
