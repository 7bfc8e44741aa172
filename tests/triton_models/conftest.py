"""Puts the model files on the import path as Triton does, over a stand-in for the stub's own module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trtllm_kit.resources import triton_models

FAKES = Path(__file__).parent / "fakes"

for folder in (FAKES, triton_models() / "llmapi"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(autouse=True)
def empty_page() -> None:
    """Give each test a metrics page of its own: one process has one, as in Triton, and tests come in any order."""
    from triton_python_backend_utils import MetricFamily

    MetricFamily.page.clear()
