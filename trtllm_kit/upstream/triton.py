"""What Triton's llmapi model accepts and answers, and the metric families of the TensorRT-LLM backend."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from trtllm_kit.upstream.facts import Fact, held, read_table, rows, spelt_out

_TABLE = "triton_llmapi"


class Tensor(Fact):
    """One input or output tensor of the llmapi model, as ``config.pbtxt`` declares it."""

    name: str
    data_type: str
    """Triton's spelling: ``TYPE_STRING``, ``TYPE_FP32`` ..."""
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is any length."""
    optional: bool = True
    summary: str


class MetricValue(Fact):
    """One value of a family's label, which is one time series a model."""

    name: str
    unit: str
    meaning: str
    kit_only: bool = False
    """Reported by trtkit's model files and not by upstream's."""


class MetricFamily(Fact):
    """One ``nv_trt_llm_*`` or ``nv_llm_*`` family; its series also carry ``model`` and ``version``."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    description: str
    label: str
    values: tuple[MetricValue, ...]
    buckets: tuple[float, ...] = ()
    """Upper bounds, for histograms."""


def llmapi_tensors(version: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the (inputs, outputs) of the llmapi model of that TensorRT-LLM release, in declaration order."""
    inputs, outputs = _tensors("inputs"), _tensors("outputs")
    return tuple(t for t in inputs if t.holds(version)), tuple(t for t in outputs if t.holds(version))


@cache
def metric_families() -> tuple[MetricFamily, ...]:
    """Return every metric family, with upstream's values and trtkit's own (``kit_only``)."""
    document = read_table(_TABLE)
    return tuple(_family(entry, document) for entry in document["metric_families"])


@cache
def _tensors(section: str) -> tuple[Tensor, ...]:
    return rows(_TABLE, section, Tensor)


def _family(entry: dict[str, Any], document: dict[str, Any]) -> MetricFamily:
    values = tuple(MetricValue(**held(spelt_out(value, document))) for value in entry["values"])
    return MetricFamily(**held(spelt_out(entry, document)) | {"values": values})
