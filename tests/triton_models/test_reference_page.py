"""The reference page names everything that the model declares and reports."""

from __future__ import annotations

import re
from pathlib import Path

from trtllm_kit.upstream.triton import llmapi_tensors, metric_families

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/tensors-and-metrics.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def test_every_tensor_has_a_row_with_its_type() -> None:
    """Each input and output of the newest release stands in the first column, with its type in the second."""
    rows = {name: row[1] for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}

    for tensor in (*llmapi_tensors("main")[0], *llmapi_tensors("main")[1]):
        assert tensor.data_type.removeprefix("TYPE_") in rows[tensor.name]


def test_every_series_has_a_row_with_its_unit() -> None:
    """Each family, label, value and unit stands in the metrics table, and nothing else does."""
    table = [row for row in ROWS if len(row) == 5 and row[0] != "family"]
    shown, family, label = set(), "", ""
    for row in table:
        family, label = row[0].strip("`") or family, row[1].strip("`") or label
        shown.add((family, label, row[2].strip("`"), row[3]))

    assert {
        (family.name, family.label, value.name, value.unit) for family in metric_families() for value in family.values
    } == shown
