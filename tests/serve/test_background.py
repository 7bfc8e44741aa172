"""A server that is kept running on what its repository holds now."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rehearsal import make_repository
from trtllm_kit.errors import LockTimeout, OutdatedServer, PortInUse
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent
from trtllm_kit.serve.background import Wanted, keep_running
from trtllm_kit.serve.process import starting, stop_background
from trtllm_kit.serve.run_record import is_running, read_record, write_record

pytestmark = pytest.mark.triton


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Path, Plan]]:
    """A repository and its plan; what serves it is stopped."""
    repository, plan = make_repository(tmp_path)
    yield repository, plan
    stop_background(repository)


def wanted(made: tuple[Path, Plan]) -> Wanted:
    """Ask for a server on the repository."""
    return Wanted(made[0], made[1].serve, {})


def test_what_runs_on_the_current_repository_is_left_alone(made: tuple[Path, Plan]) -> None:
    """The same process the second time, also where a newer one would be wanted."""
    first = keep_running(wanted(made), Silent())
    again = keep_running(wanted(made), Silent(), restart=True)

    assert (True, False) == (first.started, again.started)
    assert first.pid == again.pid
    assert (first.urls, None) == (again.urls, again.replaced)


def test_a_server_whose_record_does_not_tell_what_it_loaded_is_not_current(made: tuple[Path, Plan]) -> None:
    """Unknown is not the same: it is refused, and under restart replaced."""
    first = keep_running(wanted(made), Silent())
    record = read_record(made[0])
    assert record is not None
    write_record(made[0], record.model_copy(update={"digest": ""}))

    with pytest.raises(OutdatedServer, match=f"process {first.pid} serves an older"):
        keep_running(wanted(made), Silent())
    assert first.pid == keep_running(wanted(made), Silent(), restart=True).replaced
    assert not is_running(record)


def test_what_can_be_refused_is_refused_before_the_old_server_goes(made: tuple[Path, Plan]) -> None:
    """A port that a stranger holds stops no server, while the old server's own ports are no obstacle."""
    keep_running(wanted(made), Silent())
    record = read_record(made[0])
    assert record is not None
    write_record(made[0], record.model_copy(update={"digest": "older"}))
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        serve = made[1].serve.model_copy(update={"grpc_port": stranger.getsockname()[1]})
        with pytest.raises(PortInUse):
            keep_running(Wanted(made[0], serve, {}), Silent(), restart=True)

    assert is_running(record)


def test_a_server_that_was_killed_is_started_again(made: tuple[Path, Plan]) -> None:
    """What it left is cleared away first."""
    first = keep_running(wanted(made), Silent())
    record = read_record(made[0])
    assert record is not None
    stop_background(made[0])
    write_record(made[0], record)
    again = keep_running(wanted(made), Silent())

    assert again.started
    assert first.pid != again.pid


def test_no_server_is_started_while_another_run_starts_one(made: tuple[Path, Plan]) -> None:
    """The second waits, and gives up after its time."""
    with starting(made[0].resolve(), 1), pytest.raises(LockTimeout):
        keep_running(wanted(made), Silent(), lock_seconds=0.1)
    assert read_record(made[0]) is None


def test_a_temporary_folder_with_other_letters_than_ascii_is_no_obstacle(
    made: tuple[Path, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's Python stub could not find its own files there; the workspace goes elsewhere, and goes away."""
    folder = tmp_path / "größe"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    keep_running(wanted(made), Silent())
    record = read_record(made[0])
    assert record is not None
    assert record.workspace.isascii()
    stop_background(made[0])

    assert not Path(record.workspace).exists()


def test_a_stop_waits_for_who_starts(made: tuple[Path, Plan]) -> None:
    """While another run starts or replaces the server nothing is ended; afterwards it is."""
    kept = keep_running(wanted(made), Silent())
    record = read_record(made[0])
    assert record is not None

    with starting(made[0].resolve(), 1), pytest.raises(LockTimeout, match="another run is working on"):
        stop_background(made[0], lock_seconds=0.2)
    assert is_running(record)
    assert kept.pid == stop_background(made[0])
    assert not is_running(record)
