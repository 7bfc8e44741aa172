"""What clients and monitoring have to change: tensors, required fields, streaming, metric families (pure)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trtllm_kit.upstream.engine_settings import ClientTensor, client_tensors, old_metrics
from trtllm_kit.upstream.triton import llmapi_tensors

POLICY = (
    "The one model is named tensorrt_llm, whatever the ensemble or script in front of the engine was called.",
    "text_input alone is required; send sampling_param_max_tokens in each request all the same.",
    "The model is decoupled: call /v2/models/tensorrt_llm/generate, /generate_stream or a gRPC stream; "
    "/infer answers 501.",
    "Tensors have no batch dimension: a request holds one text.",
    "The prompt stands in text_output unless sampling_param_exclude_input_from_output is true.",
)
"""What holds for every client, beside the names of tensors."""
SHOWN_BY = (
    "These are what the llmapi model shows that trtkit writes; upstream's own shows no family of the engine, and "
    "trtllm-serve has `trtllm_*` families on a page of its own."
)
"""Whose metrics the table speaks of."""


@dataclass(frozen=True)
class ClientRow:
    """One tensor of the old models, and the one in its place."""

    side: str
    old: str
    new: str
    """Empty where none has its place in the release."""
    how: str
    note: str

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class MetricRow:
    """One metric family, and what shows the same."""

    old: str
    new: str
    how: str
    note: str

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def client_rows(to: str) -> tuple[ClientRow, ...]:
    """Return every tensor of the models around an engine, with what the release's llmapi model calls it."""
    inputs, outputs = llmapi_tensors(to)
    taken = {("input", one.name) for one in inputs} | {("output", one.name) for one in outputs}
    return tuple(
        ClientRow(row.side, old, row.new, row.how, row.note)
        if not row.new or (row.side, row.new) in taken
        else _late(row, old, to)
        for row in client_tensors()
        for old in row.old
    )


def _late(row: ClientTensor, old: str, to: str) -> ClientRow:
    """Return the row of a tensor whose successor the release does not have."""
    why = f"the llmapi model of release {to} has no tensor {row.new}"
    return ClientRow(row.side, old, "", "none", f"{why}: {row.note}" if row.note else why)


def metric_rows() -> tuple[MetricRow, ...]:
    """Return every metric family of a server with engines, with what shows the same on the new one."""
    return tuple(MetricRow(row.old, row.new, row.how, row.note) for row in old_metrics())
