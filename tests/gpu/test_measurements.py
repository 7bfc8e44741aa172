"""The pages of measurements show what the measured rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import ceiling_fit, ceiling_table, step_table

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "measurements"
DATA = FOLDER / "h200-ceilings.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Give the measured rows."""
    told: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
    return told


def test_every_table_of_the_page_is_made_of_the_rows(document: dict[str, Any]) -> None:
    """No figure of a table was typed by hand, and none is left over from another run."""
    page = (FOLDER / "h200-ceilings.md").read_text("utf-8")
    shown = {part: text for part, text in ceiling_table.sections(document) if part != "steps"}
    assert {"gemm", "moe", "context", "generation", "links", "memory", "launch", "small", "sustained"} == shown.keys()
    assert [] == [part for part, text in shown.items() if text not in page]


def test_the_constants_of_the_page_are_those_of_the_rows(document: dict[str, Any]) -> None:
    """A fit of the rows gives the table of constants again."""
    assert ceiling_fit.text(document) in (FOLDER / "h200-ceilings.md").read_text("utf-8")


def test_measured_steps_stand_beside_their_predictions(document: dict[str, Any]) -> None:
    """All 36 steps were predicted, and the page tells every error."""
    predictions = (FOLDER / "predictions-h200.md").read_text("utf-8")
    assert 36 == len(step_table.predicted(predictions))
    assert step_table.text(document, predictions) in (FOLDER / "h200-steps.md").read_text("utf-8")


def test_a_fit_finds_the_constants_that_rows_were_made_with() -> None:
    """From times of a product with known shares, exponent and overhead, the fit recovers them within 2 %."""
    wanted = {"bandwidth": 0.8, "peak": 0.6, "p": 3.0, "overhead": 5.0}
    rows = []
    for m in (1, 16, 64, 256, 1024, 4096):
        for n, k in ((4096, 4096), (28672, 4096), (1024, 8192), (8192, 28672)):
            memory = ((n * k + m * k) * 2 + m * n * 2) / (ceiling_table.BANDWIDTH * wanted["bandwidth"])
            arithmetic = 2 * m * n * k / (ceiling_table.PEAK["bf16"] * wanted["peak"])
            seconds = wanted["overhead"] * 1e-6 + (memory ** wanted["p"] + arithmetic ** wanted["p"]) ** (
                1 / wanted["p"]
            )
            rows.append(["bf16", m, n, k, seconds * 1e3])
    document = {"parts": {"gemm": {"columns": ["dtype", "m", "n", "k", "ms"], "rows": rows}}}
    (found,) = ceiling_fit.products(document)
    assert list(wanted.values()) == pytest.approx([float(one) for one in found[2:6]], rel=0.02)


def test_a_share_of_the_bound_is_of_the_longer_of_bytes_and_operations() -> None:
    """One row of 8192 x 8192 in BF16 is bound by its 134 MB, 8192 rows by their 1.1 TFLOP."""
    few = {"dtype": "bf16", "m": 1, "n": 8192, "k": 8192}
    assert 1e3 * (2 * 8192 * 8192 + 2 * 2 * 8192) / 4.8e12 == pytest.approx(ceiling_table.bound(few))
    assert 1e3 * 2 * 8192**3 / 989e12 == pytest.approx(ceiling_table.bound(few | {"m": 8192}))
