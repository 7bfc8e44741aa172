"""Target ``monitoring``: files that Prometheus, Alertmanager, Grafana and the DCGM exporter read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serve.targets.support import CLUSTER, CPU, NODE, subject
from tests.support.specs import profile
from trtllm_kit.health.changes import TTFT
from trtllm_kit.health.load import rules_for
from trtllm_kit.serve.targets.dashboard import FIRST_TOKEN, dashboard, dashboard_queries
from trtllm_kit.serve.targets.monitoring import monitoring_command, monitoring_files, servers
from trtllm_kit.spec.hardware import Hardware

OFF_BY_DEFAULT = {
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_POWER_VIOLATION",
    "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_EXP_XID_ERRORS_COUNT",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
}  # fmt: skip


def tool(name: str, package: str) -> str:
    """Return a program of Debian's; skip loudly without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"SKIPPED FOR LACK OF A TOOL: no {name}; apt-get install {package}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files of a target."""
    for name, text in monitoring_files(subject()).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_prometheus_takes_configuration_and_rules(folder: Path) -> None:
    """Promtool reads both, and finds nothing to say about the rules."""
    promtool = tool("promtool", "prometheus")
    subprocess.run([promtool, "check", "config", "--lint-fatal", str(folder / "prometheus.yaml")], check=True)
    subprocess.run([promtool, "check", "rules", "--lint-fatal", str(folder / "rules.yaml")], check=True)


def test_alertmanager_takes_its_example(folder: Path) -> None:
    """Amtool reads it, and routes by severity: what is critical or unknown is urgent."""
    amtool = tool("amtool", "prometheus-alertmanager")
    config = str(folder / "alertmanager.yaml")
    subprocess.run([amtool, "check-config", config], check=True)
    found = {}
    for severity in ("critical", "unknown", "warning"):
        command = [amtool, "config", "routes", "test", f"--config.file={config}", f"severity={severity}"]
        found[severity] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert {"critical": "urgent", "unknown": "urgent", "warning": "normal"} == found


def test_every_rule_of_check_health_is_an_alert(folder: Path) -> None:
    """One definition: each rule that the deployment has is there with its severity, and none else but the built-in."""
    (group,) = yaml.safe_load((folder / "rules.yaml").read_text())["groups"]
    alerts = {rule["annotations"]["check"]: rule["labels"]["severity"] for rule in group["rules"] if "alert" in rule}
    expected = {rule.name: rule.severity.name.lower() for rule in rules_for(profile({}).profile, NODE).rules}
    assert expected.items() <= alerts.items()


def test_the_dashboard_is_grafanas() -> None:
    """Grafana's own types read it, panels do not overlap, and every panel has a query."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    document = dashboard(subject())
    read = models.Dashboard.from_json(document)
    assert (document["title"], len(document["panels"])) == (read.title, len(read.panels or []))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]]
    assert len(places) == len(set(places))
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in document["panels"])
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


@pytest.mark.parametrize(
    "words",
    ["KV cache", "queued", "first token", "between tokens", "Drafted", "GPU in use", "NVLink traffic", "NVLink errors"],
)
def test_the_dashboard_shows_what_is_looked_at_first(words: str) -> None:
    """Each subject of an alert has a panel."""
    assert any(words in panel["title"] for panel in dashboard(subject())["panels"])


def test_every_query_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    """Prometheus parses each of them."""
    promtool = tool("promtool", "prometheus")
    rules = [{"record": f"query_{n}", "expr": expr} for n, expr in enumerate(dashboard_queries(subject()))]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yaml")], check=True)


def query(tmp_path: Path, title: str, series: dict[str, str], expected: float) -> None:
    """Have promtool evaluate a panel's last query after ten minutes of samples, one a minute."""
    panel = next(one for one in dashboard(subject())["panels"] if one["title"] == title)
    job = subject().name
    given = [
        {"series": text.replace("{", f'{{job="{job}",instance="i",', 1), "values": values}
        for text, values in series.items()
    ]
    told = {"labels": '{instance="i"}', "value": expected}
    case = {"expr": panel["targets"][-1]["expr"], "eval_time": "10m", "exp_samples": [told]}
    tests = [{"interval": "1m", "input_series": given, "promql_expr_test": [case]}]
    (tmp_path / "test.yaml").write_text(json.dumps({"tests": tests}))
    subprocess.run([tool("promtool", "prometheus"), "test", "rules", str(tmp_path / "test.yaml")], check=True)


def test_the_models_own_counters_give_an_acceptance(tmp_path: Path) -> None:
    """Drafted and accepted tokens, which have a label each that the other lacks, are divided."""
    kinds = {"draft": ("drafted", 100), "accepted": ("accepted", 65)}
    series = {
        f'trtllm_spec_decode_num_{name}_tokens_total{{model="m",version="1",speculation="{value}"}}': f"0+{step}x10"
        for name, (value, step) in kinds.items()
    }
    query(tmp_path, "Drafted tokens accepted", series, 0.65)


@pytest.mark.parametrize("own", [True, False], ids=["own", "tritons"])
def test_the_first_token_is_the_engines_where_it_is_told(tmp_path: Path, own: bool) -> None:
    """The 99th percentile is read from the model's histogram, and from Triton's milliseconds without one."""
    engine, triton = TTFT
    assert TTFT == FIRST_TOKEN
    series = {f'{triton}_bucket{{model="m",le="{bound}"}}': "0+100x10" for bound in ("100", "+Inf")}
    series |= {f'{triton}_count{{model="m"}}': "0+100x10"}
    if own:
        series |= {f'{engine}_bucket{{model="m",le="{bound}"}}': "0+100x10" for bound in ("0.01", "+Inf")}
        series |= {f'{engine}_count{{model="m"}}': "0+100x10"}
    query(tmp_path, "Time to the first token", series, 0.0099 if own else 0.099)


def test_the_exporter_reads_what_its_own_list_leaves_out(folder: Path) -> None:
    """Three values a line, no quotes, and among them every counter that is off by default and an alert could want."""
    lines = (folder / "dcgm-counters.csv").read_text().splitlines()
    rows = [line.split(", ") for line in lines if not line.startswith("#")]
    assert {3} == set(map(len, rows))
    assert {"gauge", "counter"} == {row[1] for row in rows}
    names = [row[0] for row in rows]
    assert set(names) >= OFF_BY_DEFAULT
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("changes", "machine", "expected"),
    [
        ({}, NODE, ["127.0.0.1:8002"]),
        ({"serve.host": "::"}, NODE, ["[::1]:8002"]),
        ({"serve.host": "10.0.0.7"}, NODE, ["10.0.0.7:8002"]),
        ({"parallelism.tensor": 4, "parallelism.replicas": 2}, NODE, ["127.0.0.1:8002", "127.0.0.1:8012"]),
        (
            {"parallelism.tensor": 8, "parallelism.replicas": 2, "deploy.hosts": ["a", "b", "c", "d"]},
            CLUSTER,
            ["a:8002", "c:8002"],
        ),
    ],
)
def test_prometheus_looks_at_every_server(changes: dict[str, Any], machine: Hardware, expected: list[str]) -> None:
    """Each replica's metrics port is a target, on the first of its nodes."""
    made = subject(changes, machine)
    assert expected == servers(made)
    (job, *_) = yaml.safe_load(monitoring_files(made)["prometheus.yaml"])["scrape_configs"]
    assert (made.name, expected) == (job["job_name"], job["static_configs"][0]["targets"])


def test_a_rehearsal_has_no_gpu_to_export() -> None:
    """Without a GPU Prometheus asks no exporter for one."""
    made = subject({"parallelism.tensor": 1, "runtime": "simulated"}, CPU)
    jobs = yaml.safe_load(monitoring_files(made)["prometheus.yaml"])["scrape_configs"]
    assert ["test"] == [job["job_name"] for job in jobs]
    assert ("prometheus", "--config.file=D/prometheus.yaml") == monitoring_command(made, "D")
