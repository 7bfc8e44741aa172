"""Constants out of what was measured: known ones are found again, and too few points give none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.doctor.fitted import constants_of
from trtllm_kit.spec.ceilings import known_of
from trtllm_kit.spec.load import load_hardware

GPU = load_hardware("h200x8-700w").gpu
MEASURED = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "h200-ceilings.json"
MACHINE = {"card": "NVIDIA H200", "torch": "2.11.0", "date": "2026-11-30"}


def _product(share: float, of_peak: float, m: int, n: int, k: int) -> float:
    """Return milliseconds of a product in bf16 by the model, with p = 3 and 4 µs beside."""
    memory = ((n * k + m * k) * 2 + m * n * 2) / (4.8e12 * share)
    arithmetic = 2 * m * n * k / (989.4e12 * of_peak)
    return 1e3 * (4e-6 + (memory**3 + arithmetic**3) ** (1 / 3))


def _document(rows: int = 1000) -> dict[str, Any]:
    """Return what a card would tell that reaches 0.8 of its bandwidth, 0.6 of its peak and 0.7 of its links."""
    shapes = [(m, n, k) for m in (1, 8, 64, 256, 1024, 4096) for n, k in ((4096, 4096), (8192, 28672), (1280, 8192))]
    gemm = [["bf16", m, n, k, _product(0.8, 0.6, m, n, k)] for m, n, k in shapes][:rows]
    sizes = [1 << power for power in range(20, 30)]
    links = [["all_reduce", 2, size, 1e3 * (2e-5 + size / (450e9 * 0.7)), 0.1] for size in sizes]
    links = [[*row, row[2] / row[3] / 1e6] for row in links][:rows]
    return {
        "machine": MACHINE,
        "parts": {
            "gemm": {"columns": ["dtype", "m", "n", "k", "ms"], "rows": gemm},
            "links": {
                "columns": ["kind", "ranks", "bytes", "graph_ms", "eager_ms", "bus_gb_per_second"],
                "rows": links,
            },
        },
    }


@pytest.mark.parametrize(
    ("name", "value"), [("stream_share", 0.8), ("product_share_16", 0.6), ("overlap", 3.0), ("link_share", 0.7)]
)
def test_the_constants_of_made_up_times_are_found(name: str, value: float) -> None:
    """Times that follow the model exactly give its constants back."""
    one = constants_of(_document(), GPU)[name]
    assert value == pytest.approx(one.value, rel=0.01)
    assert one.low <= one.value <= one.high


def test_what_was_not_measured_gives_no_constant() -> None:
    """No attention was measured, so no constant of it is told; three products are too few for theirs."""
    assert {"stream_share", "product_share_16", "overlap", "link_share"} == set(constants_of(_document(), GPU))
    assert {} == constants_of(_document(3), GPU)


def test_the_source_names_card_software_and_day() -> None:
    """Whoever reads the profile sees what the figure was measured on."""
    source = constants_of(_document(), GPU)["product_share_16"].source
    assert source.startswith("measured: trtkit doctor calibrate, NVIDIA H200, torch 2.11.0, 2026-11-30, 18 products")


def test_the_recorded_h200_gives_the_constants_that_ship() -> None:
    """Of the rows in docs/measurements every fitted value lies within the range that ships for Hopper."""
    found = constants_of(json.loads(MEASURED.read_text()), GPU)
    shipped = known_of(GPU, "1.2.1").constants
    assert 9 == len(found)
    outside = {
        name: one.value for name, one in found.items() if not shipped[name].low <= one.value <= shipped[name].high
    }
    assert {} == outside
