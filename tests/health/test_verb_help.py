"""What stands around a check: the explanation, the unit for a machine, targets that are found, the moving table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.health.support import SEEDS, TARGET, answers, engine_page, page, snapshots, stub_server
from tests.support.cli import trtkit
from trtllm_kit.cli.check_health import whole_paths
from trtllm_kit.errors import UsageError
from trtllm_kit.health.discover import discover, pods, scraped
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.explain import explained
from trtllm_kit.health.install import KINDS, install_text
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.sources.forks import shared_out
from trtllm_kit.health.sources.kubectl import pods_json
from trtllm_kit.health.spark import sparkline
from trtllm_kit.staging import staged

PROFILE = "cpu-rehearsal-simulated"


def test_an_explanation_walks_from_the_number_to_the_advice() -> None:
    """What fired is told with its series, metric, rule, samples and what to do, in that order."""
    rules = Ruleset(SEEDS)
    text = explained(
        evaluate(TARGET, snapshots(engine_page(queued=11, gpu=0.8), engine_page(queued=14, gpu=0.8)), rules), rules
    )
    walk = text[text.index("queue-depth (tensorrt_llm/1): WARNING: 14") :]
    parts = [
        'read from  nv_trt_llm_request_metrics{request_type="queued"}', "number     queue_depth, count",
        "rule       healthy is 0:10; 2 samples outside are WARNING", "missing    is UNKNOWN",
        "because    outside, outside in 2 samples", "try        Scale out",
    ]  # fmt: skip
    places = [walk.index(part) for part in parts]
    assert sorted(places) == places


def test_the_verb_explains() -> None:
    """--explain prints the walk, with the same exit code."""
    with stub_server(answers(engine_page(fraction=0.99))) as url:
        ran = trtkit("check-health", "-p", PROFILE, "--url", url, "--explain", "--interval", "0.1")
    assert 1 == ran.code
    assert "  rule       healthy is 0:0.9; 1 samples outside are WARNING" in ran.out


def test_the_line_for_cron_runs_in_a_shell(tmp_path: Path) -> None:
    """The command of the crontab line is one that sh runs, with per cent signs as cron wants them."""
    program = tmp_path / "trt kit"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\nexit 2\n')
    program.chmod(0o755)
    line = install_text("cron", str(program), ["--url", "http://h/a%20b", "-p", "x y"]).splitlines()[1]
    command = line.partition("* * * * ")[2].replace("\\%", "%")
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert "[check-health]\n[--url]\n[http://h/a%20b]\n[-p]\n[x y]\n" == ran.stdout
    assert "%" not in line.replace("\\%", "")


def test_the_units_are_units(tmp_path: Path) -> None:
    """Systemd's own reader has nothing to say of the service and the timer."""
    text = install_text("systemd-timer", "/bin/true", ["-p", "x", "--url", "http://h/$a%20"])
    parts = text.split("# /etc/systemd/system/")[1:]
    files = {part.partition("\n")[0]: part.partition("\n")[2].split("\n#")[0] for part in parts}
    assert {"trtkit-check.service", "trtkit-check.timer"} == files.keys()
    assert "$$a%%20" in files["trtkit-check.service"]
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no systemd-analyze")
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    ran = subprocess.run(
        [analyze, "verify", *map(str, tmp_path.iterdir())], capture_output=True, text=True, check=False
    )
    assert 0 == ran.returncode, ran.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_verb_prints_what_to_install(kind: str, tmp_path: Path) -> None:
    """Each kind has the program's whole path, the options given, and files by their whole paths."""
    (tmp_path / "own.yaml").write_text("x")
    ran = trtkit("check-health", "install", f"--{kind}", "-p", "own.yaml", "--timeout", "2", cwd=tmp_path)
    assert 0 == ran.code, ran.err
    assert f"check-health -p {tmp_path.resolve()}/own.yaml --timeout 2" in ran.out
    assert "install" not in ran.out.replace("[Install]", "").replace(str(tmp_path), "")


def test_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders get whole paths in both spellings; names, addresses and commands stay what they are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat").mkdir()
    words = ["--repository", "repo", "--log=s.log", "-p", "chat", "--discover", "chat", "--exec", "chat", "--once"]
    assert [
        "--repository", f"{tmp_path}/repo", f"--log={tmp_path}/s.log", "-p", "chat", "--discover", f"{tmp_path}/chat",
        "--exec", "chat", "--once",
    ] == whole_paths(words)  # fmt: skip


def test_an_installation_that_checks_nothing_is_refused() -> None:
    """A line for cron that names no server would say UNKNOWN for ever."""
    ran = trtkit("check-health", "install", "--cron", "--once")
    assert (3, True) == (ran.code, "nothing says which server to check" in ran.err)


@pytest.mark.parametrize("words", [["install"], ["install", "--cron", "--nagios"], ["--cron"], ["remove", "--cron"]])
def test_half_an_installation_is_refused(words: list[str]) -> None:
    """Install takes exactly one kind, and a kind takes install."""
    ran = trtkit("check-health", *words)
    assert (3, True) == (ran.code, "install takes one of" in ran.err)


def pod(name: str, **status: Any) -> dict[str, Any]:
    """Make a pod as kubectl prints it."""
    ports = [{"name": "http", "containerPort": 8000}, {"name": "metrics", "containerPort": 8012}]
    return {
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {"containers": [{"name": "server", "ports": ports}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7"} | status,
    }


def test_running_pods_are_targets() -> None:
    """A running pod is read at its metrics port; one that is pending, or has no address, is none."""
    six, bare = pod("c", podIP="fd00::7"), pod("d")
    bare["spec"] = {"containers": [7, {"name": "server", "ports": [7]}]}
    items = [pod("a"), pod("b", phase="Pending"), pod("e", podIP=None), six, bare, "odd", {}]
    assert [
        ("llm/a", "http://10.0.0.7:8012/metrics"), ("llm/c", "http://[fd00::7]:8012/metrics"),
        ("llm/d", "http://10.0.0.7:8002/metrics"),
    ] == [(target.name, target.url) for target in pods({"kind": "List", "items": items})]  # fmt: skip


def test_pods_come_from_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``k8s:LABELS`` asks kubectl for pods with these labels; what it cannot do is told in its own words."""
    program = tmp_path / "kubectl"
    program.write_text(
        f'#!/bin/sh\n[ "$4" = "app=x" ] || {{ echo "no such label $4" >&2; exit 1; }}\ncat {tmp_path}/pods\n'
    )
    program.chmod(0o755)
    (tmp_path / "pods").write_text(json.dumps({"items": [pod("a")]}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ["llm/a"] == [target.name for target in discover("k8s:app=x")]
    with pytest.raises(UsageError, match="no such label app=y"):
        pods_json("app=y")
    (tmp_path / "pods").write_text("no JSON")
    with pytest.raises(UsageError, match="the pods of k8s:app=x are not known"):
        discover("k8s:app=x")
    (tmp_path / "pods").write_text('{"items": []}')
    with pytest.raises(UsageError, match="has no target"):
        discover("k8s:app=x")


def test_a_deployment_for_prometheus_names_its_servers(tmp_path: Path) -> None:
    """The static targets that deploy wrote for Prometheus are targets; the exporter's are not."""
    document = {
        "scrape_configs": [
            {"job_name": "chat", "metrics_path": "/metrics", "static_configs": [{"targets": ["a:8002", "b:8002"]}]},
            {"job_name": "dcgm", "static_configs": [{"targets": ["a:9400"]}]},
            {"static_configs": [{"targets": 7}, "odd"]},
            "odd",
        ]
    }
    assert ["http://a:8002/metrics", "http://b:8002/metrics"] == [target.url for target in scraped(document)]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(document))
    assert ["chat/a:8002", "chat/b:8002"] == [target.name for target in discover(str(tmp_path))]
    (tmp_path / "prometheus.yaml").write_text("a: [")
    with pytest.raises(UsageError, match=r"cannot be read"):
        discover(str(tmp_path))


def test_repositories_are_targets(tmp_path: Path) -> None:
    """A model repository, or a folder of some, names its servers, with the ranks that their records tell."""
    for number, name in enumerate(("chat", "code")):
        with staged(tmp_path / name, "repository", "k") as stage:
            assert stage is not None
            stage.publish({}, {"ports": {"metrics": 9000 + number}})
    with staged(tmp_path / "weights", "checkpoint", "k") as stage:
        assert stage is not None
        stage.publish({}, {})
    (tmp_path / "code.run.json").write_text('{"pid": 7, "ranks": [8, 9]}')
    found = [(target.name, target.url, target.ranks) for target in discover(str(tmp_path))]
    assert [("chat", "http://127.0.0.1:9000/metrics", ()), ("code", "http://127.0.0.1:9001/metrics", (8, 9))] == found
    assert ["code"] == [target.name for target in discover(str(tmp_path / "code"))]
    with pytest.raises(UsageError, match="has no target"):
        discover(str(tmp_path / "weights"))


def test_what_is_found_is_checked(tmp_path: Path) -> None:
    """--discover takes a file of targets, and each is checked."""
    with stub_server(answers(page("triton-2.51-heartbeat-idle-1"), page("triton-2.51-heartbeat-idle-2"))) as url:
        (tmp_path / "t.json").write_text(json.dumps({"targets": [{"name": "chat", "url": url}]}))
        ran = trtkit("check-health", "-p", PROFILE, "--discover", tmp_path / "t.json", "--interval", "0.1", "--json")
    assert (0, "chat") == (ran.code, ran.json["name"])


def test_the_table_moves(tmp_path: Path) -> None:
    """Watch shows each number with what it was in the rounds before, and ends with the last state."""
    pages = [engine_page(active=count, iteration=count) for count in (1, 2, 3)]
    with stub_server(answers(*pages)) as url:
        ran = trtkit("watch", "-p", PROFILE, "--url", url, "--count", "3", "--interval", "0.05")
    assert 0 == ran.code, ran.err
    last = ran.out[ran.out.rindex("target") :]
    (row,) = [line for line in last.splitlines() if "active_requests" in line]
    assert ["3", "▃▆█"] == row.split()[-2:]


def test_the_table_in_json_is_a_round_a_line() -> None:
    """--json prints every round as one line."""
    with stub_server(answers(engine_page())) as url:
        ran = trtkit("watch", "-p", PROFILE, "--url", url, "--count", "2", "--interval", "0", "--json")
    assert [[url], [url]] == [[verdict["url"] for verdict in json.loads(line)] for line in ran.out.splitlines()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 1, 2, 3], "▁▃▆█"), ([1.0], "▁"), ([0.0, None, 1.0], "▁ █"), ([], ""), ([-5.0, 99.0], "▁█")],
)
def test_bars(values: list[float | None], expected: str) -> None:
    """The lowest is the lowest bar, the highest the highest, and what is not known a gap."""
    assert expected == sparkline(values)


def test_what_goes_wrong_here_leaves_no_copy(tmp_path: Path) -> None:
    """An error in the share of this process is raised as it is, and the copies that still work are ended."""
    here = os.getpid()

    def work(share: Any) -> list[int]:
        if os.getpid() != here:
            (tmp_path / "copy").write_text(str(os.getpid()))
            time.sleep(600)
        while not (tmp_path / "copy").exists() or not (tmp_path / "copy").read_text():
            time.sleep(0.01)
        raise ValueError(f"{len(share)} items")

    with pytest.raises(ValueError, match="3 items"):
        shared_out(work, list(range(6)), 2)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "copy").read_text()), 0)


def test_work_is_shared_and_comes_back_in_order() -> None:
    """Three copies of the process each do a third, and the results stand as the items do."""
    made = shared_out(lambda share: [(item, os.getpid()) for item in share], list(range(10)), 3)
    assert list(range(10)) == [item for item, _ in made]
    assert 3 == len({pid for _, pid in made})


def test_what_a_killed_copy_did_not_do_is_done_here() -> None:
    """A copy that is killed loses nothing."""
    here = os.getpid()

    def work(share: Any) -> list[int]:
        if os.getpid() != here:
            os.kill(os.getpid(), 9)
        return list(share)

    assert list(range(5)) == shared_out(work, list(range(5)), 2)


@pytest.mark.parametrize("refused", ["fork", "pipe"])
def test_where_there_is_no_room_for_copies_all_is_done_here(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that allows no more processes or files costs time and no result."""

    def refuse() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, refused, refuse)
    assert [(item, os.getpid()) for item in range(5)] == shared_out(
        lambda share: [(item, os.getpid()) for item in share], list(range(5)), 3
    )
