"""What a running server leaves beside its repository."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trtllm_kit.errors import ManifestError, StorageError
from trtllm_kit.serve.launch import RUN_MARK, backend_config
from trtllm_kit.serve.run_record import (
    RecordedUrls,
    RunRecord,
    end_recorded,
    is_running,
    rank_processes,
    read_record,
    record_file,
    run_processes,
    server_processes,
    stub_processes,
    write_record,
)


def record(pid: int, prefix: str, workspace: Path) -> RunRecord:
    """Make a record."""
    urls = RecordedUrls(http="http://h:1", grpc="h:2", metrics="http://h:3/metrics")
    return RunRecord(pid=pid, started_at=1.5, urls=urls, shm_prefix=prefix, log="/l", workspace=str(workspace))


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Give a function that starts a process which sleeps, with arguments to be found by."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        *arguments: str, name: str = "python", code: str = "import time; time.sleep(60)"
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([name, "-c", code, *arguments], executable=sys.executable)
        started.append(process)
        shown = Path(f"/proc/{process.pid}/cmdline")
        deadline = time.monotonic() + 10
        while arguments[-1].encode() not in shown.read_bytes():  # a busy machine shows it a moment later
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def prefix() -> Iterator[str]:
    """A shared memory prefix nobody else has; what is left of it is removed."""
    made = f"trtkit-test-{secrets.token_hex(4)}_"
    yield made
    for left in Path("/dev/shm").glob(f"{made}*"):
        left.unlink()


def test_a_record_comes_back_as_it_was(tmp_path: Path, prefix: str) -> None:
    """The record stands beside the repository, and a health check finds in it what it needs."""
    written = record(7, prefix, tmp_path)
    write_record(tmp_path / "repository", written)

    assert tmp_path / "repository.run.json" == record_file(tmp_path / "repository")
    assert written == read_record(tmp_path / "repository")
    assert read_record(tmp_path / "other") is None


def test_a_broken_record_is_an_error(tmp_path: Path) -> None:
    """A record that cannot be read says which file to remove."""
    record_file(tmp_path / "repository").write_text("{")

    with pytest.raises(ManifestError, match=r"repository\.run\.json"):
        read_record(tmp_path / "repository")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, prefix: str) -> None:
    """Where no record can be written the error names the place."""
    with pytest.raises(StorageError, match=r"missing/\.repository\.run\.json\."):
        write_record(tmp_path / "missing" / "repository", record(7, prefix, tmp_path))


def test_a_reused_process_id_is_not_taken_for_the_server(tmp_path: Path, prefix: str) -> None:
    """A process of that number without the run's mark in its command line is another one."""
    assert not is_running(record(os.getpid(), prefix, tmp_path))


def test_a_server_is_found_by_its_mark(
    tmp_path: Path, prefix: str, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The process with the run's prefix among its flags is the server; a stub of it is not."""
    server = spawn(backend_config(prefix))
    stub = spawn(f"{prefix}region", name="/b/triton_python_backend_stub")

    assert ((server.pid,), (stub.pid,)) == (server_processes(prefix), stub_processes(prefix))
    assert is_running(record(server.pid, prefix, tmp_path))


def test_ranks_and_workers_of_a_run_end_with_it(
    tmp_path: Path, prefix: str, spawn: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that a launcher started has no mark in its command line, and is known by its environment."""
    server = spawn(backend_config(prefix))
    monkeypatch.setenv(RUN_MARK, prefix)
    rank = spawn("rank 1")
    monkeypatch.setenv(RUN_MARK, f"{prefix}other")
    stranger = spawn("rank 1")
    written = record(server.pid, prefix, tmp_path / "workspace")
    assert {server.pid, rank.pid} == set(run_processes(prefix))

    end_recorded(tmp_path / "repository", written)

    assert -9 == rank.wait(5)
    assert stranger.poll() is None


def test_the_oldest_process_of_each_rank_is_the_rank(
    prefix: str, spawn: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what runs as rank 0 and rank 1 the first started of each counts, and what has no rank does not."""
    monkeypatch.setenv(RUN_MARK, prefix)
    spawn("launcher")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    second = spawn("rank 1")
    time.sleep(0.05)  # the kernel counts starts in hundredths of a second
    spawn("worker of rank 1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    first = spawn("rank 0")
    assert (first.pid, second.pid) == rank_processes(prefix)
    assert () == rank_processes(f"{prefix}other")


def test_ending_leaves_nothing(tmp_path: Path, prefix: str, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Server, stub, shared memory, workspace and record are gone; a process that only speaks of them is not."""
    server = spawn(backend_config(prefix))
    stub = spawn(f"{prefix}region", name="triton_python_backend_stub")
    bystander = spawn(f"ls /dev/shm/{prefix}region", f"{prefix}region")
    workspace = tmp_path / "workspace"
    (workspace / "backends").mkdir(parents=True)
    Path(f"/dev/shm/{prefix}1").write_bytes(b"x")
    written = record(server.pid, prefix, workspace)
    write_record(tmp_path / "repository", written)

    end_recorded(tmp_path / "repository", written)

    assert -15 == server.wait(5)
    assert -9 == stub.wait(5)
    assert bystander.poll() is None
    assert not workspace.exists()
    assert [] == list(Path("/dev/shm").glob(f"{prefix}*"))
    assert read_record(tmp_path / "repository") is None


def test_a_record_holds_a_path_that_is_no_text(tmp_path: Path) -> None:
    """A stray byte in a folder's name comes back as it was."""
    written = record(1, "p_", tmp_path).model_copy(update={"log": "/srv/\udcff.log"})
    write_record(tmp_path / "repository", written)

    assert written == read_record(tmp_path / "repository")
    assert ["repository.run.json"] == [path.name for path in tmp_path.iterdir()]
