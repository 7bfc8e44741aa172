"""Real servers, started and ended in every way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.rehearsal import make_repository, until
from trtllm_kit.errors import PortInUse, ServerFailed, UsageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent
from trtllm_kit.serve.client import Sampling, generate, ready, stream
from trtllm_kit.serve.process import check_ports, start, stop_background
from trtllm_kit.serve.run_record import RunRecord, is_running, read_record
from trtllm_kit.spec.profile import Serve

MODEL = "tensorrt_llm"
triton = pytest.mark.triton


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, Plan]]:
    """A repository with the simulated runtime; whatever is left of its server after the test is ended."""
    folder, plan = make_repository(tmp_path)
    yield folder, plan
    stop_background(folder)


def left_of(record: RunRecord) -> list[str]:
    """Return what is left of a run: processes, shared memory, its workspace."""
    mark = record.shm_prefix.encode()
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            processes += [entry.name] if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes() else []
        except OSError:
            continue
    memory = [path.name for path in Path("/dev/shm").glob(f"{record.shm_prefix}*")]
    return processes + memory + [record.workspace] * Path(record.workspace).exists()


def recorded(repository: Path) -> RunRecord:
    """Read the run record that must be there."""
    record = read_record(repository)
    assert record is not None
    return record


@triton
def test_a_stopped_server_leaves_nothing(repository: tuple[Path, Plan]) -> None:
    """While it runs it is recorded; afterwards there is no process, shared memory, workspace or record."""
    folder, plan = repository
    before = time.time()

    with start(folder, plan.serve, {}, Silent()) as server:
        record = recorded(folder)
        assert ready(server.urls.http)
        assert (server.pid, server.urls.metrics) == (record.pid, record.urls.metrics)
        assert before <= record.started_at <= time.time()
        assert 3 <= len(left_of(record))

    assert [] == left_of(record)
    assert read_record(folder) is None
    server.stop()  # again: does nothing


@triton
def test_stopping_lets_a_running_answer_finish(repository: tuple[Path, Plan]) -> None:
    """A stream that runs when the server is told to stop gets all its words."""
    folder, plan = repository
    texts: list[str] = []
    first = threading.Event()

    def read(url: str) -> None:
        for piece in stream(url, MODEL, "tell me", Sampling(max_tokens=60)):
            texts.append(piece.text)
            first.set()

    with start(folder, plan.serve, {}, Silent()) as server:
        reader = threading.Thread(target=read, args=(server.urls.http,))
        reader.start()
        assert first.wait(5)
    reader.join(5)

    assert 60 == len("".join(texts).split())


@triton
def test_a_killed_server_takes_its_stubs_with_it(repository: tuple[Path, Plan]) -> None:
    """After SIGKILL of the server its stubs end by themselves; the next start clears the rest away."""
    folder, plan = repository
    with start(folder, plan.serve, {}, Silent()).keep() as server:
        record = recorded(folder)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not server.running())

    until(lambda: not any(name.isdigit() for name in left_of(record)), seconds=12)  # 0.2 s, rarely 10 s
    with pytest.raises(ServerFailed, match="tritonserver ended by signal 9"):
        server.raise_if_exited()
    with start(folder, plan.serve, {}, Silent()) as again:
        assert [] == left_of(record)
        assert "length" == generate(again.urls.http, MODEL, "hi", Sampling(max_tokens=1)).finish_reason


@triton
def test_a_background_server_outlives_its_starter(repository: tuple[Path, Plan]) -> None:
    """A process that starts a server and ends leaves it answering; stop_background ends it from elsewhere."""
    folder, plan = repository
    code = (
        "import sys; from pathlib import Path; from trtllm_kit.progress import Silent\n"
        "from trtllm_kit.checkpoint.plan_file import read_stored_plan; from trtllm_kit.serve.process import start\n"
        "folder = Path(sys.argv[1])\n"
        "with start(folder, read_stored_plan(folder).serve, {}, Silent()).keep():\n    pass\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, folder], start_new_session=True)
    assert 0 == starter.wait(30)
    record = recorded(folder)

    with pytest.raises(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGHUP)  # closing the starter's terminal reaches nobody
    assert "length" == generate(record.urls.http, MODEL, "hi", Sampling(max_tokens=2)).finish_reason
    with pytest.raises(ServerFailed, match=r"a server runs on .* already"):
        start(folder, plan.serve, {}, Silent())
    assert record.pid == stop_background(folder)

    assert [] == left_of(record)
    assert stop_background(folder) is None


@triton
def test_ctrl_c_in_the_terminal_stops_it_cleanly(repository: tuple[Path, Plan], tmp_path: Path) -> None:
    """An interrupt of the whole foreground group ends starter and server, with nothing left."""
    folder, _ = repository
    code = (
        "import sys, time; from pathlib import Path; from trtllm_kit.progress import Silent\n"
        "from trtllm_kit.checkpoint.plan_file import read_stored_plan; from trtllm_kit.serve.process import start\n"
        "folder = Path(sys.argv[1])\n"
        "try:\n"
        "    with start(folder, read_stored_plan(folder).serve, {}, Silent()) as server:\n"
        "        while server.running(): time.sleep(0.05)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, folder], start_new_session=True)
    until(lambda: read_record(folder) is not None and ready(recorded(folder).urls.http), seconds=20)
    record = recorded(folder)

    os.killpg(starter.pid, signal.SIGINT)

    assert 130 == starter.wait(15)
    assert [] == left_of(record)
    assert read_record(folder) is None


@triton
def test_a_launcher_around_the_server_ends_with_it(
    repository: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a launcher in front the server alone is told to stop; the launcher ends after it, in its own way."""
    folder, plan = repository
    manifest = folder / "trtkit-manifest.json"
    manifest.write_text(manifest.read_text().replace('"runtime":"simulated"', '"runtime":"tensorrt_llm"').replace(
        '"runtime": "simulated"', '"runtime": "tensorrt_llm"'))  # fmt: skip
    launcher = tmp_path / "bin" / "trtllm-llmapi-launch"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/bash\n"$@"\necho "server ended: $?" > {tmp_path}/end\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", f"{launcher.parent}:{os.environ['PATH']}")

    with start(folder, plan.serve, {}, Silent()) as server:
        record = recorded(folder)
        assert is_running(record)
        assert "length" == generate(server.urls.http, MODEL, "hi", Sampling(max_tokens=1)).finish_reason

    assert [] == left_of(record)
    assert "server ended: 0\n" == (tmp_path / "end").read_text()


@triton
def test_an_interrupt_while_it_starts_leaves_nothing(repository: tuple[Path, Plan]) -> None:
    """Ctrl-C before the server is ready ends it too."""

    class Impatient(Silent):
        def advance(self, amount: float) -> None:
            """Interrupt at the first wait."""
            records.append(recorded(folder))
            raise KeyboardInterrupt

    folder, plan = repository
    records: list[RunRecord] = []

    with pytest.raises(KeyboardInterrupt):
        start(folder, plan.serve, {}, Impatient())

    assert [] == left_of(records[0])
    assert not is_running(records[0])


@triton
def test_a_model_that_does_not_load_is_told_with_its_reason(repository: tuple[Path, Plan]) -> None:
    """The model's own words are the reason, the log's last lines are shown, and nothing is left."""
    folder, plan = repository
    config = folder / MODEL / "config.pbtxt"
    config.write_text(config.read_text().replace('"simulated"', '"magic"'))

    with pytest.raises(ServerFailed) as failed:
        start(folder, plan.serve, {}, Silent())

    assert "tritonserver ended with exit code 1" in failed.value.what
    assert failed.value.why.startswith("config.pbtxt: parameter runtime is 'magic'; it must be one of")
    assert str(failed.value).count("\n") == 2 + len(failed.value.log)
    assert "failed to load all models" in failed.value.log[-1]
    assert read_record(folder) is None


def test_a_server_that_never_comes_up_meets_the_deadline(
    repository: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs at its start, as over a dead stub, is ended at the deadline."""
    folder, plan = repository
    hung = tmp_path / "tritonserver"
    hung.write_text(f"#!{sys.executable}\nimport time\nprint('still here', flush=True)\ntime.sleep(60)\n")
    hung.chmod(0o755)
    monkeypatch.setenv("TRITONSERVER", str(hung))

    with pytest.raises(ServerFailed) as failed:
        start(folder, plan.serve.model_copy(update={"start_grace": 0.5}), {}, Silent())

    assert ("tritonserver was not ready after 0.5 s", "still here") == (failed.value.what, failed.value.why)
    assert "serve.start_grace" in failed.value.hint
    assert read_record(folder) is None


def test_a_taken_port_is_named_with_a_free_one(repository: tuple[Path, Plan]) -> None:
    """A port that somebody listens on is told before anything starts, with the next free one."""
    folder, plan = repository
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(PortInUse) as taken:
            start(folder, plan.serve.model_copy(update={"grpc_port": port}), {}, Silent())

    assert f"serve.grpc_port {port} is taken" == taken.value.what
    assert "set serve.grpc_port to " in taken.value.hint
    assert read_record(folder) is None


def test_a_port_in_time_wait_is_free() -> None:
    """A port whose last connection was closed a moment ago can be bound again, as a server does."""
    (port,) = free_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    others = free_ports(2)

    check_ports(Serve(http_port=port, grpc_port=others[0], metrics_port=others[1]))


def test_equal_ports_leave_nothing(repository: tuple[Path, Plan]) -> None:
    """A profile whose ports collide is refused before anything is made."""
    folder, plan = repository
    same = plan.serve.model_copy(update={"grpc_port": plan.serve.http_port})

    with pytest.raises(UsageError, match=r"serve\.grpc_port is"):
        start(folder, same, {}, Silent())

    assert not list(folder.parent.glob("*.server.log"))
