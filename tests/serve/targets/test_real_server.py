"""The scripts of targets with a real tritonserver on the CPU: alone, from a ConfigMap, and as two ranks of mpirun."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.serve.targets.support import of_kind
from tests.support.rehearsal import make_repository
from tests.support.specs import rehearsal
from trtllm_kit.plan.plan import Plan
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.serve.targets.kubernetes import kubernetes_files
from trtllm_kit.serve.targets.local import local_files
from trtllm_kit.serve.targets.mpi import mpirun_files
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.serve.tritonserver import find_tritonserver
from trtllm_kit.spec.profile_deploy import Deploy

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """Give a repository of the simulated runtime, and its plan."""
    root = tmp_path_factory.mktemp("road")
    return make_repository(root)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give an environment in which ``tritonserver`` is the one of the wheel, with its backends."""
    found = find_tritonserver({"PATH": "/nonexistent"})
    root = tmp_path_factory.mktemp("tools")
    (root / "backends/python").mkdir(parents=True)
    for name, target in found.links.items():
        (root / "backends/python" / name).symlink_to(target)
    server = root / "tritonserver"
    server.write_text(f'#!/bin/bash\nexec -a tritonserver {found.binary} --backend-directory={root}/backends "$@"\n')
    server.chmod(0o755)
    libraries = {"LD_LIBRARY_PATH": ":".join(map(str, found.library_folders))} if found.library_folders else {}
    return libraries | {"PATH": f"{root}:{found.python_folder}:/usr/bin:/bin", "HOME": str(root)}


def subject_of(plan: Plan, **fields: object) -> Subject:
    """Make the subject of a rehearsal; a drain of ten seconds."""
    values: dict[str, object] = {
        "plan": plan,
        "hardware": rehearsal(),
        "deploy": Deploy(name="real", drain=10.0),
        "repository": repository_files(plan, Path("/repository")),
        "place": "../repository",
    }
    return Subject(**(values | fields))  # type: ignore[arg-type]


def written(files: Mapping[str, str], folder: Path) -> Path:
    """Write the files of a target."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@contextlib.contextmanager
def started(script: Path, environment: dict[str, str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script until its server is ready; end what is left of it."""
    log = script.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(["sh", str(script)], env=environment, stdout=output, stderr=output, cwd="/")
    try:
        deadline = time.monotonic() + 60
        while not ready(port):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(40)


def ready(port: int) -> bool:
    """Whether the model answers, as a probe asks."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/tensorrt_llm/ready", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def streamed(port: int, tokens: int) -> int:
    """Ask for that many tokens as a stream; return how many words came, several of which may travel together."""
    body = {"text_input": "hello", "streaming": True, "sampling_param_max_tokens": tokens}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/tensorrt_llm/generate_stream",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        events = [json.loads(line.removeprefix(b"data:")) for line in answer if line.startswith(b"data:")]
    return sum(len(one["text_output"].split()) for one in events)


def test_a_script_serves_and_drains(made: tuple[Path, Plan], tools: dict[str, str]) -> None:
    """The real server takes every flag of the script; told to end in the middle of a stream, it sends all of it."""
    repository, plan = made
    folder = written(local_files(subject_of(plan)), repository.with_name("repository.local"))
    pieces: list[int] = []
    with started(folder / "tritonserver.sh", tools, plan.serve.http_port) as process:
        asked = threading.Thread(target=lambda: pieces.append(streamed(plan.serve.http_port, 60)))
        asked.start()
        time.sleep(0.4)
        process.send_signal(signal.SIGTERM)
        asked.join(20)
        assert 0 == process.wait(20)
    assert pieces[0] >= 60


def test_a_server_reads_its_repository_from_a_config_map(
    made: tuple[Path, Plan], tools: dict[str, str], tmp_path: Path
) -> None:
    """Laid out as the kubelet does, with links to a dated folder, the files of the manifest are a repository."""
    repository, plan = made
    checkpoint = str((repository / "tensorrt_llm/1/checkpoint").resolve())
    at = {"serve": plan.serve.model_copy(update={"checkpoint_path": "/models/checkpoint"})}
    there = plan.model_copy(update=at)
    image = Deploy(name="real", drain=10.0, image="trtkit:1")  # the release's own lacks trtkit
    made_for_pods = subject_of(
        there, repository=repository_files(there, Path("/repository")), in_pods=True, linked=False, deploy=image
    )
    files = kubernetes_files(made_for_pods)
    config = of_kind(files, "ConfigMap")["data"]
    (volume, *_) = of_kind(files, "Deployment")["spec"]["template"]["spec"]["volumes"]
    dated = tmp_path / "..2026_11_30"
    for item in volume["configMap"]["items"]:
        path = dated / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = config[item["key"]].replace("/models/checkpoint", checkpoint)
        path.write_text(text.replace("/trtkit/", f"{tmp_path}/").replace("0.0.0.0", "127.0.0.1"))
    (tmp_path / "..data").symlink_to(dated.name)
    for name in {item["path"].split("/")[0] for item in volume["configMap"]["items"]}:
        (tmp_path / name).symlink_to(f"..data/{name}")
    with started(tmp_path / "serve.sh", tools, plan.serve.http_port):
        assert 5 == streamed(plan.serve.http_port, 5)


class TwoRanks(Subject):
    """A subject of two ranks, each a server of its own."""

    world = 2  # type: ignore[assignment]
    engines = True  # type: ignore[assignment]


@pytest.mark.slow
def test_mpirun_starts_two_real_ranks(made: tuple[Path, Plan], tools: dict[str, str]) -> None:
    """Two real servers load the same repository side by side: one opens ports, and when it ends both do."""
    if shutil.which("mpirun") is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no mpirun; apt-get install openmpi-bin")
    repository, plan = made
    made_for = subject_of(plan)
    two = TwoRanks(**{name: getattr(made_for, name) for name in Subject.__dataclass_fields__})
    object.__setattr__(two, "hardware", made_for.hardware.model_copy(update={"gpus_per_node": 2}))
    folder = written(mpirun_files(two), repository.with_name("repository.mpirun"))
    environment = tools | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    with started(folder / "serve.sh", environment, plan.serve.http_port) as process:
        stubs = [path for path in Path("/dev/shm").iterdir() if path.name.startswith("real_")]
        assert {"real_0", "real_1"} <= {path.name[:6] for path in stubs}
        assert 5 == streamed(plan.serve.http_port, 5)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
    assert not ready(plan.serve.http_port)


def test_prometheus_configuration_names_the_port_that_answers(made: tuple[Path, Plan]) -> None:
    """What is scraped is what the server was told to open."""
    from trtllm_kit.serve.targets.monitoring import monitoring_files

    _, plan = made
    (job,) = yaml.safe_load(monitoring_files(subject_of(plan))["prometheus.yaml"])["scrape_configs"]
    assert [f"127.0.0.1:{plan.serve.metrics_port}"] == job["static_configs"][0]["targets"]
