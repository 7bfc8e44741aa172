"""What Prometheus's operator and a cluster's scaling read: the metrics port of every server, and the alert rules."""

from __future__ import annotations

from trtllm_kit.serve.targets.objects import Object, labels, made
from trtllm_kit.serve.targets.pods import ROLE
from trtllm_kit.serve.targets.subject import Subject

SCRAPE_SECONDS = 15
METRICS_PATH = "/metrics"


def monitor_objects(subject: Subject) -> list[Object]:
    """Return the monitor of the pods that open ports, and the rules, as the Prometheus operator takes them."""
    chosen = labels(subject) | ({ROLE: "leader"} if subject.nodes > 1 else {})
    endpoint = {"port": "metrics", "path": METRICS_PATH, "interval": f"{SCRAPE_SECONDS}s"}
    spec = {
        "jobLabel": "app.kubernetes.io/instance",
        "selector": {"matchLabels": chosen},
        "podMetricsEndpoints": [endpoint],
    }
    monitor = made(subject, "PodMonitor", subject.name, {"spec": spec})
    if not subject.rules:
        return [monitor]
    return [monitor, made(subject, "PrometheusRule", subject.name, {"spec": {"groups": list(subject.rules)}})]
