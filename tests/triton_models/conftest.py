"""Puts the model files on the import path as Triton does, over a stand-in for the stub's own module."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).parent / "fakes"

for folder in (FAKES, ROOT / "triton_models" / "llmapi"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
