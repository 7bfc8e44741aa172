"""Measured rows of TensorRT-LLM servers: what the table says, and what of it cannot be meant as it stands.

The table is ``systems/silicon_sample.csv`` of the wheel aiconfigurator-core, or its part of TensorRT-LLM.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

MODELS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-r1",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-r1",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
"""A row's model by its name in ``models.yaml``; DeepSeek R1, V3 and V3.1 have one shape."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: a server, the load, and the mean times of its requests."""

    model: str
    system: str
    precision: str
    """``fp8``, ``fp4`` or ``bf16``."""
    version: str
    prompt: int
    answer: int
    tensor: int
    expert: int
    attention_dp: bool
    replicas: int
    concurrency: int
    """Requests at once, of all replicas."""
    ttft_s: float
    tpot_s: float
    day: str
    """Year, month, day; empty when the table has none."""

    @property
    def label(self) -> str:
        """Return what tells the row from others, for a report."""
        ranks = f"{'DP' if self.attention_dp else 'TP'}{self.tensor}" + (f"EP{self.expert}" if self.expert > 1 else "")
        shape = f"{self.prompt}/{self.answer}"
        return f"{self.model} {self.precision} {self.system} {self.version or '-'} {ranks} {shape} c{self.concurrency}"


@dataclass(frozen=True, slots=True)
class Table:
    """What a file held."""

    rows: tuple[Row, ...]
    left_out: dict[str, int]
    """Rows that were left out, by the reason."""


def read_table(path: Path) -> Table:
    """Read the rows of TensorRT-LLM without disaggregation; equal measurements count once.

    Raises ``OSError`` when the file cannot be read, ``KeyError`` when it lacks a column.
    """
    rows: dict[Row, None] = {}
    left_out: dict[str, int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            reason = _reason(cells, rows)
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
    return Table(tuple(rows), left_out)


def _reason(cells: dict[str, str], rows: dict[Row, None]) -> str:
    """Put a row among the others; or return why not."""
    if cells.get("backend", "trtllm") != "trtllm" or cells.get("mode", "agg") != "agg":
        return "another engine, or disaggregated"
    if cells["model_path"] not in MODELS:
        return f"model {cells['model_path']} has no sizes in models.yaml"
    row = _row(cells)
    if row.tensor > 8:
        return "more than 8 tensor ranks: disaggregated deployments, whose parts are not in the table"
    if row in rows:
        return "the same measurement again, under another name of the model or of its split"
    rows[row] = None
    return ""


def _row(cells: dict[str, str]) -> Row:
    batch = int(cells["batch_size"])
    split, concurrency = _split(cells), int(_noted(cells, "silicon_concurrency") or batch)
    return Row(
        model=MODELS[cells["model_path"]],
        system=cells["system"],
        precision=cells["precision"] or "bf16",
        version=cells["backend_version"],
        prompt=int(cells["isl"]),
        answer=int(cells["osl"]),
        tensor=split.ranks,
        expert=split.expert,
        attention_dp=split.attention_dp,
        replicas=1 if split.mended else max(1, concurrency // batch // split.ranks),
        concurrency=concurrency,
        ttft_s=round(float(cells["silicon_ttft_ms"]), 3) / 1e3,
        tpot_s=round(float(cells["silicon_tpot_ms"]), 3) / 1e3,
        day=_noted(cells, "measured")[:10],
    )


def _noted(cells: dict[str, str], name: str) -> str:
    """Return a column, or what the wheel's table notes under that name beside the row's source; empty without."""
    if name in cells:
        return cells[name]
    notes = dict(note.strip().partition("=")[::2] for note in cells["silicon_data_source"].split(";"))
    return notes.get(name, "")


@dataclass(frozen=True, slots=True)
class _Split:
    ranks: int
    expert: int
    attention_dp: bool
    mended: bool = False


def _split(cells: dict[str, str]) -> _Split:
    """Return the ranks that are meant.

    Some rows have the product of n MoE tensor ranks and n expert ranks as the tensor or attention ranks, where the
    run had n GPUs and n expert ranks: the same measurement stands in the table both ways, and n x n GPUs were not
    there. Where the same numbers are right (two by two on four GPUs of one node, releases from 1.0.0rc3 and 1.3), the
    model does not fit on fewer.
    """
    tensor, data = int(cells["tp_size"]), int(cells["attention_dp_size"] or 1)
    moe_tensor, expert = int(cells["moe_tp_size"]), int(cells["moe_ep_size"])
    ranks = max(tensor, data)
    if expert > 1 and moe_tensor == expert and ranks == expert**2 and not cells["backend_version"].startswith(_APART):
        return _Split(expert, expert, attention_dp=data > 1, mended=True)
    return _Split(ranks, max(1, expert), attention_dp=data > 1)


_APART = ("1.0.0rc3", "1.3.0")
