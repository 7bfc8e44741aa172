"""The measurement of a card's ceilings, small, on a real card: ``python -m benchmarks.gpu.ceilings FILE --small``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch and triton")
pytest.importorskip("triton", reason="needs torch and triton")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the small selection with steps and give its file."""
    file = tmp_path_factory.mktemp("ceilings") / "small.json"
    parts = ["launch", "gemm", "generation", "context", "moe", "memory", "sustained", "small", "links", "steps"]
    argv = [sys.executable, "-m", "benchmarks.gpu.ceilings", str(file), "--small", "--only", *parts]
    subprocess.run(argv, cwd=ROOT, check=False, capture_output=True)  # what failed is in the file
    read: dict[str, Any] = json.loads(file.read_text())
    return read


def rows(told: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the rows of a part as objects."""
    found = told["parts"][part]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def test_every_part_is_measured_and_none_fails(told: dict[str, Any]) -> None:
    """Kernels agree with torch in higher precision (else their part fails), and each part has rows."""
    assert {} == told["failed"]
    assert [] == [part for part, found in told["parts"].items() if not found["rows"]]


def test_no_time_is_under_what_the_card_can_do(told: dict[str, Any]) -> None:
    """A product takes longer than its weights at 8 TB/s, which caches would give and memory of this age does not."""
    products = [row for row in rows(told, "gemm") if row["ms"] is not None]
    size = {"bf16": 2, "fp8": 1, "fp8_rows": 1, "fp8_blocks": 1}
    assert [] == [row for row in products if row["ms"] / 1e3 < row["n"] * row["k"] * size[row["dtype"]] / 8e12]


def test_a_step_of_more_sequences_takes_longer_than_its_weights(told: dict[str, Any]) -> None:
    """Steps through all layers take longer than through those that ran, in both formats."""
    steps = rows(told, "steps")
    assert {("bf16", "generation"), ("bf16", "prompt"), ("fp8", "generation"), ("fp8", "prompt")} == {
        (row["dtype"], row["kind"]) for row in steps
    }
    assert [] == [row for row in steps if row["ms"] <= row["ms_run"]]


def test_links_are_measured_where_there_are_several_cards(told: dict[str, Any]) -> None:
    """Every collective has a row for two ranks where torch sees two cards, and there is no such part for one."""
    kinds = {row["kind"] for row in rows(told, "links")} if "links" in told["parts"] else set()
    several = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", "p2p both", "one shot", "two shot"}
    assert (several if torch.cuda.device_count() > 1 else set()) == kinds
