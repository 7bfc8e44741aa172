"""The Grafana dashboard of a deployment, as plain data: what is looked at first when an alert fires."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trtllm_kit.serve.targets.subject import Subject

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
FIRST_TOKEN = ("trtllm_time_to_first_token_seconds", "nv_inference_first_response_histogram_ms")
"""Histograms of the time to the first token, the first there is; those that ``health`` reads on Triton's page."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: a title, its unit as Grafana spells it, and the series with their legends."""

    title: str
    unit: str
    series: Sequence[tuple[str, str]]
    """PromQL and legend."""
    most: float | None = None
    """The largest value there can be."""


def dashboard(subject: Subject) -> dict[str, Any]:
    """Return the dashboard document (schema 39: Grafana 10 and later)."""
    panels = [_panel(number, panel) for number, panel in enumerate(_panels(subject.name))]
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": f"{subject.name}: TensorRT-LLM",
        "uid": hashlib.sha256(subject.name.encode()).hexdigest()[:16],
        "tags": ["trtkit", "tensorrt-llm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [variable]},
        "panels": panels,
    }


def dashboard_queries(subject: Subject) -> tuple[str, ...]:
    """Return every PromQL expression of the dashboard."""
    return tuple(expr for panel in _panels(subject.name) for expr, _ in panel.series)


def _panels(job: str) -> tuple[Panel, ...]:
    return (*_of_engine(job), *_of_gpus(job))


def _of_engine(job: str) -> tuple[Panel, ...]:
    ours = f'{{job="{job}"}}'
    tokens = f"sum by (instance, model) (rate(nv_llm_output_token_len_sum{ours}[5m]))"
    generating = (
        "sum by (instance, model) (nv_trt_llm_inflight_batcher_metrics"
        f'{{job="{job}",inflight_batcher_specific_metric="generation_requests"}})'
    )
    accepted, drafted = (
        f"sum by (instance) (rate(trtllm_spec_decode_num_{kind}_tokens_total{ours}[5m]))"
        for kind in ("accepted", "draft")
    )  # each counter has a label of its own
    legend = "{{instance}}"
    return (
        Panel("KV cache in use", "percentunit", [(f"trtkit_kv_cache_usage{ours}", legend)], 1.0),
        Panel("Requests queued", "short", [(f"trtkit_queue_depth{ours}", legend)]),
        Panel(
            "Requests held",
            "short",
            [
                (f"trtkit_active_requests{ours}", "active {{instance}}"),
                (f"trtkit_scheduled_requests{ours}", "in the last step {{instance}}"),
                (f"trtkit_paused_requests{ours}", "paused {{instance}}"),
            ],
        ),
        Panel("Time to the first token", "s", _quantiles(_first_token, job)),
        Panel("Time of later tokens, per answer", "s", _quantiles(_later_tokens, job)),
        Panel("Time between tokens, mean", "s", [(f"{generating} / ({tokens} > 0)", legend)]),
        Panel("Tokens a second", "short", [(tokens, legend)]),
        Panel("Drafted tokens accepted", "percentunit", [(f"{accepted} / ({drafted} > 0)", legend)], 1.0),
        Panel("Engine steps a second", "short", [(f"rate({_general(job)}[5m])", legend)]),
        Panel(
            "Requests failed by the engine",
            "short",
            [(f"rate(nv_inference_request_failure{ours}[5m])", "{{reason}} {{instance}}")],
        ),
    )


def _of_gpus(job: str) -> tuple[Panel, ...]:
    """Triton's own readings, and those of the exporter, which is another scrape job."""
    ours = f'{{job="{job}"}}'
    return (
        Panel("GPU in use", "percentunit", [(f"nv_gpu_utilization{ours}", "{{gpu_uuid}}")], 1.0),
        Panel("GPU power", "watt", [(f"nv_gpu_power_usage{ours}", "{{gpu_uuid}}")]),
        Panel("GPU memory in use", "bytes", [(f"nv_gpu_memory_used_bytes{ours}", "{{gpu_uuid}}")]),
        Panel(
            "Tensor cores at work (DCGM)",
            "percentunit",
            [("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{Hostname}} {{gpu}}")],
            1.0,
        ),
        Panel(
            "NVLink traffic (DCGM)", "short", [("rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[5m])", "{{Hostname}} {{gpu}}")]
        ),
        Panel(
            "NVLink errors (DCGM)",
            "short",
            [
                (f"increase(DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL[5m])", f"{kind} {{{{Hostname}}}} {{{{gpu}}}}")
                for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
            ],
        ),
    )


def _quantiles(of: Callable[[float, str], str], job: str) -> list[tuple[str, str]]:
    return [(of(share, job), f"p{round(share * 100)} {{{{instance}}}}") for share in (0.5, 0.95, 0.99)]


def _first_token(share: float, job: str) -> str:
    """Read the engine's own histogram; of a server without one Triton's, whose milliseconds count whole answers too."""
    own, other = FIRST_TOKEN
    instead = f"{_quantile(share, other, job)} / 1000"
    return f'{_quantile(share, own, job)} or {instead} unless on (instance) {own}_count{{job="{job}"}}'


def _later_tokens(share: float, job: str) -> str:
    return _quantile(share, "trtllm_time_per_output_token_seconds", job)


def _quantile(share: float, family: str, job: str) -> str:
    return f'histogram_quantile({share}, sum by (le, instance) (rate({family}_bucket{{job="{job}"}}[5m])))'


def _general(job: str) -> str:
    return f'nv_trt_llm_general_metrics{{job="{job}",general_type="iteration_counter"}}'


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    place = {
        "x": number % _COLUMNS * _WIDTH,
        "y": number // _COLUMNS * _HEIGHT,
        "w": _WIDTH,
        "h": _HEIGHT,
    }
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
        for index, (expr, legend) in enumerate(panel.series)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
        "targets": targets,
    }
