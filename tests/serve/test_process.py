"""Real servers, started and ended in every way."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rehearsal import make_repository, until
from trtllm_kit.errors import (
    AlreadyRunning,
    CannotListen,
    PortInUse,
    RequestFailed,
    ServerFailed,
    StorageError,
    UsageError,
)
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent
from trtllm_kit.serve.client import Sampling, generate, ready, stream
from trtllm_kit.serve.process import start, stop_background
from trtllm_kit.serve.run_record import RunRecord, is_running, read_record, stub_processes

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


def rank_of(pid: int) -> bytes:
    """Read which rank a process is, from its environment."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(word for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")).partition(b"=")[2]


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
    with pytest.raises(AlreadyRunning, match=r"a server runs on .* already"):
        start(folder, plan.serve, {}, Silent())
    assert record.pid == stop_background(folder)

    assert [] == left_of(record)
    assert stop_background(folder) is None


class Told(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.labels: list[str] = []
        self.amount = 0.0

    def start(self, label: str, total: float, unit: str) -> None:
        """Keep what is waited for."""
        self.labels.append(f"{label}: {total:g} {unit}")

    def advance(self, amount: float) -> None:
        """Add up."""
        self.amount += amount


@triton
def test_a_server_whose_stub_died_is_ended_soon(repository: tuple[Path, Plan]) -> None:
    """Nobody is left who could finish the running request, so the exit time-out is not waited for."""
    folder, plan = repository
    with start(folder, plan.serve, {}, Silent()).keep() as server:
        record = recorded(folder)
    pieces = stream(server.urls.http, MODEL, "tell me", Sampling(max_tokens=400))
    next(pieces)
    for stub in stub_processes(record.shm_prefix):
        os.kill(stub, signal.SIGKILL)
    before = time.monotonic()

    assert server.pid == stop_background(folder)

    assert 15 > time.monotonic() - before
    assert [] == left_of(record)
    with pytest.raises(RequestFailed):
        list(pieces)


@triton
@pytest.mark.parametrize("stopped", ["server", "stubs", "both"])
def test_a_suspended_server_is_woken_and_ends_cleanly(repository: tuple[Path, Plan], stopped: str) -> None:
    """Under SIGSTOP nobody hears SIGTERM; woken, the server ends by itself and well before its time-out."""
    folder, plan = repository
    with start(folder, plan.serve, {}, Silent()).keep() as server:
        record = recorded(folder)
    stubs = stub_processes(record.shm_prefix)
    for pid in {"server": (server.pid,), "stubs": stubs, "both": (server.pid, *stubs)}[stopped]:
        os.kill(pid, signal.SIGSTOP)
    before, told = time.monotonic(), Told()

    assert server.pid == stop_background(folder, told)

    assert 15 > time.monotonic() - before
    assert not server.running()
    server.raise_if_exited()  # it ended with success, by no signal
    assert [] == left_of(record)
    assert ["waiting for running requests: 35 seconds"] == told.labels
    assert 0 < told.amount < 15


@triton
@pytest.mark.parametrize(("host", "url"), [("localhost", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_a_name_and_ipv6_are_listened_on(repository: tuple[Path, Plan], host: str, url: str) -> None:
    """A host name is resolved before Triton sees it, and an IPv6 address spelled as Triton reads it."""
    folder, plan = repository

    with start(folder, plan.serve.model_copy(update={"host": host}), {}, Silent()) as server:
        assert server.urls.http.startswith(url)
        assert "length" == generate(server.urls.http, MODEL, "hi", Sampling(max_tokens=1)).finish_reason


def test_a_foreign_address_starts_nothing(repository: tuple[Path, Plan]) -> None:
    """An address of another machine is refused before there is a process, a log or a record."""
    folder, plan = repository

    with pytest.raises(CannotListen, match=r"serve\.host 192\.0\.2\.77 is no address of this machine"):
        start(folder, plan.serve.model_copy(update={"host": "192.0.2.77"}), {}, Silent())

    assert not list(folder.parent.glob("*.server.log"))
    assert read_record(folder) is None


def test_an_environment_too_large_is_told_and_leaves_nothing(repository: tuple[Path, Plan]) -> None:
    """What the system does not take at the launch is an error of the three-line form."""
    folder, plan = repository

    with pytest.raises(StorageError, match="shorten the environment"):
        start(folder, plan.serve, {"LONG": "x" * 200_000}, Silent())

    assert read_record(folder) is None


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
def test_ranks_under_mpirun_end_with_the_server(
    repository: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks of a real mpirun: both are recorded, the first serves, the second works, and nothing is left."""
    if shutil.which("mpirun") is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no mpirun; apt-get install openmpi-bin")
    folder, plan = repository
    manifest = folder / "trtkit-manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"runtime": "simulated"', '"runtime": "tensorrt_llm", "ranks": 2'))
    launcher, over = tmp_path / "bin" / "trtllm-llmapi-launch", tmp_path / "over"
    launcher.parent.mkdir()
    launcher.write_text(
        f'#!/bin/bash\nif [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then "$@"; echo "server ended: $?" > {over}; exit; fi\n'
        f"while [ ! -e {over} ]; do sleep 0.1; done; echo $OMPI_COMM_WORLD_RANK > {tmp_path}/worker\n"
    )
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", f"{launcher.parent}:{os.environ['PATH']}")

    with start(folder, plan.serve, {}, Silent()) as server:
        record = recorded(folder)
        assert [b"0", b"1"] == [rank_of(pid) for pid in record.ranks]
        assert "length" == generate(server.urls.http, MODEL, "hi", Sampling(max_tokens=1)).finish_reason

    assert [] == left_of(record)
    assert ("server ended: 0\n", "1\n") == (over.read_text(), (tmp_path / "worker").read_text())


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


def test_equal_ports_leave_nothing(repository: tuple[Path, Plan]) -> None:
    """A profile whose ports collide is refused before anything is made."""
    folder, plan = repository
    same = plan.serve.model_copy(update={"grpc_port": plan.serve.http_port})

    with pytest.raises(UsageError, match=r"serve\.grpc_port is"):
        start(folder, same, {}, Silent())

    assert not list(folder.parent.glob("*.server.log"))
