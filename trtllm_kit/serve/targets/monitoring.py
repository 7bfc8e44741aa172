"""Target ``monitoring``: Prometheus with the alerts of ``check-health``, Alertmanager, Grafana, the DCGM exporter."""

from __future__ import annotations

import ipaddress
from typing import Any

from trtllm_kit.serve.targets.dashboard import dashboard
from trtllm_kit.serve.targets.documents import csv_text, json_text, yaml_text
from trtllm_kit.serve.targets.monitors import METRICS_PATH, SCRAPE_SECONDS
from trtllm_kit.serve.targets.subject import PORT_STEP, Files, Subject
from trtllm_kit.upstream.deployment import counters

RULES, PROMETHEUS, ALERTMANAGER = "rules.yaml", "prometheus.yaml", "alertmanager.yaml"
DASHBOARD, COUNTERS = "dashboard.json", "dcgm-counters.csv"
HOOK = "http://127.0.0.1:9095/alerts"
"""The example's address to notify, on Alertmanager's own machine: what listens there is yours, with its secrets."""
_EXPORTER_PORT = 9400
_EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what a server binds is not what is asked


def monitoring_files(subject: Subject) -> Files:
    """Return the configuration of everything that watches the servers."""
    subject.check("monitoring", image=False)
    head = f"Watches {subject.name}; made by trtkit deploy."
    rows = [(counter.name, counter.kind, counter.help) for counter in counters()]
    exporter = f"{head}\nFor the exporter's option --collectors; half of these are not in its own list."
    return {
        RULES: yaml_text({"groups": list(subject.rules)}, head=head),
        PROMETHEUS: yaml_text(_prometheus(subject), head=head),
        ALERTMANAGER: yaml_text(
            _alertmanager(), head=f"{head}\nAn example: put your own receivers in the place of {HOOK}."
        ),
        DASHBOARD: json_text(dashboard(subject)),
        COUNTERS: csv_text(rows, head=exporter),
    }


def monitoring_command(_subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that start a Prometheus on the configuration; in a cluster the operator has the same rules."""
    return ("prometheus", f"--config.file={folder}/{PROMETHEUS}")


def servers(subject: Subject) -> list[str]:
    """Return the metrics endpoints as ``host:port``: of the hosts that the profile names, else of this machine."""
    own = subject.plan.serve.host
    hosts = subject.deploy.hosts[:: subject.nodes] or (_EVERY.get(own, own),)
    copies = subject.replicas_per_node if subject.shares_host else 1
    first = subject.ports["metrics"]
    return [f"{_bracketed(host)}:{first + PORT_STEP * copy}" for host in hosts for copy in range(copies)]


def _prometheus(subject: Subject) -> dict[str, Any]:
    every = f"{SCRAPE_SECONDS}s"
    job = {
        "job_name": subject.name,
        "metrics_path": METRICS_PATH,
        "static_configs": [{"targets": servers(subject)}],
    }
    jobs = [job]
    if subject.on_gpus:
        hosts = subject.deploy.hosts or ("127.0.0.1",)
        endpoints = [f"{_bracketed(host)}:{_EXPORTER_PORT}" for host in hosts]
        jobs.append({"job_name": "dcgm", "static_configs": [{"targets": endpoints}]})
    return {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": jobs,
    }


def _alertmanager() -> dict[str, Any]:
    """Group by server; what is critical or unknown is repeated sooner, and hides warnings of the same server."""
    urgent = {"matchers": ['severity=~"critical|unknown"'], "receiver": "urgent", "repeat_interval": "1h"}
    return {
        "route": {
            "receiver": "normal",
            "group_by": ["job", "instance", "alertname"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [urgent],
        },
        "inhibit_rules": [
            {
                "source_matchers": ['alertname="TrtkitScrapeFailed"'],
                "target_matchers": ['alertname=~"Trtkit.+"', 'alertname!="TrtkitScrapeFailed"'],
                "equal": ["job", "instance"],
            }
        ],
        "receivers": [_receiver("urgent"), _receiver("normal")],
    }


def _receiver(name: str) -> dict[str, Any]:
    return {"name": name, "webhook_configs": [{"url": HOOK, "send_resolved": True}]}


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
