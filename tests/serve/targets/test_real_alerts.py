"""The whole chain of target ``monitoring``: a real Triton, Prometheus, Alertmanager, and a fault that is told."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_ports
from tests.support.rehearsal import make_repository, running
from tests.support.specs import rehearsal
from trtllm_kit.health.load import rules_for
from trtllm_kit.health.prometheus import rule_groups
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.serve.targets.monitoring import HOOK, monitoring_files
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.spec.profile_deploy import Deploy

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@contextlib.contextmanager
def notified() -> Iterator[tuple[int, list[str]]]:
    """Listen for notifications; yield the port, and a list that grows by the names of firing alerts."""
    names: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names.extend(one["labels"]["alertname"] for one in body["alerts"] if one["status"] == "firing")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], names
    finally:
        server.shutdown()


@contextlib.contextmanager
def program(*words: str) -> Iterator[None]:
    """Run a program as long as the block lasts."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_fault_of_a_real_server_is_notified(tmp_path: Path) -> None:
    """Prometheus scrapes the server, a stopped model process fires its alert, and Alertmanager tells the receiver."""
    alertmanager = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
    prometheus = shutil.which("prometheus")
    if prometheus is None or alertmanager is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: apt-get install prometheus prometheus-alertmanager")
    repository, plan = make_repository(tmp_path / "road")
    groups = rule_groups(rules_for(None, rehearsal()), "real", start_grace_seconds=20, scrape_seconds=1)
    made = Subject(
        plan=plan,
        hardware=rehearsal(),
        deploy=Deploy(name="real"),
        repository=repository_files(plan, repository),
        place="",
        rules=groups,
    )
    alert_port, port = free_ports(2)
    with notified() as (hook_port, names):
        for name, text in monitoring_files(made).items():
            quick = text.replace("15s", "1s").replace("30s", "1s").replace("127.0.0.1:9093", f"127.0.0.1:{alert_port}")
            (tmp_path / name).write_text(quick.replace(HOOK, f"http://127.0.0.1:{hook_port}/alerts"))
        with (
            running(repository, plan.serve) as server,
            program(
                alertmanager,
                f"--config.file={tmp_path}/alertmanager.yaml",
                f"--storage.path={tmp_path}/alerts",
                f"--web.listen-address=127.0.0.1:{alert_port}",
                "--cluster.listen-address=",
            ),
            program(
                prometheus,
                f"--config.file={tmp_path}/prometheus.yaml",
                f"--storage.tsdb.path={tmp_path}/series",
                f"--web.listen-address=127.0.0.1:{port}",
            ),
        ):
            time.sleep(8)
            assert [] == [name for name in names if name.startswith("TrtkitModelHeartbeat")]
            (stub,) = children(server.pid)
            os.kill(stub, signal.SIGSTOP)
            try:
                deadline = time.monotonic() + 40
                while "TrtkitModelHeartbeat" not in names:
                    assert time.monotonic() < deadline, names
                    time.sleep(0.2)
            finally:
                os.kill(stub, signal.SIGCONT)
