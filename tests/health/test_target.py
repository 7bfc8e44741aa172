"""Where to look, from what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.errors import ManifestError, UsageError
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.target import target_for
from trtllm_kit.spec.profile import DeployProfile, Serve
from trtllm_kit.staging import staged


def profile(**serve: Any) -> DeployProfile:
    """Make a profile."""
    return DeployProfile(
        schema_version=1, name="p", hardware="h", trtllm_version="1.2.1", serve=Serve.model_validate(serve)
    )


def repository(folder: Path, facts: dict[str, Any], record: object = None) -> Path:
    """Make a repository with these facts, and the record of a running server."""
    out = folder / "repo"
    with staged(out, "repository", "k") as stage:
        assert stage is not None
        stage.publish({}, facts)
    if record is not None:
        (folder / "repo.run.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return out


FACTS = {"ports": {"http": 18000, "grpc": 18001, "metrics": 18002}, "start_grace_seconds": 45.0}
RECORD = {
    "pid": 4711,
    "started_at": 1_795_993_500.5,
    "urls": {"http": "http://127.0.0.1:28000", "grpc": "127.0.0.1:28001", "metrics": "http://127.0.0.1:28002/metrics"},
    "shm_prefix": "x",
    "log": "server.log",
}


def test_a_running_server_says_where_it_is(tmp_path: Path) -> None:
    """Address, start and process come from the run record, the grace from the manifest."""
    assert Target("http://127.0.0.1:28002/metrics", 45.0, 1_795_993_500.5, 4711, "server.log") == target_for(
        repository(tmp_path, FACTS, RECORD), None, profile(start_grace="5 min")
    )


@pytest.mark.parametrize(("recorded", "ranks"), [([7, 8], (7, 8)), ("x", ()), ([7, -1, "x", True], (7,)), (None, ())])
def test_the_ranks_of_a_running_server_are_watched(tmp_path: Path, recorded: object, ranks: tuple[int, ...]) -> None:
    """The processes that were recorded are ranks; what is no process's number is none; a URL is another server."""
    folder = repository(tmp_path, FACTS, RECORD | {"ranks": recorded})
    assert (ranks, ()) == (target_for(folder, None, None).ranks, target_for(folder, "http://h:1/metrics", None).ranks)


def test_a_repository_without_a_server_gives_its_port(tmp_path: Path) -> None:
    """Without a run record the manifest's port is asked, and there is no start to be graceful about."""
    missing = str(tmp_path.resolve() / "repo.run.json")
    assert Target("http://127.0.0.1:18002/metrics", 45.0, None, None, "", missing) == target_for(
        repository(tmp_path, FACTS), None, None
    )


def test_a_stopped_server_leaves_its_log(tmp_path: Path) -> None:
    """After a stop the log beside the repository is named, and the record that is no more; a URL expects no record."""
    stopped = repository(tmp_path, FACTS)
    log = tmp_path.resolve() / "repo.server.log"
    log.write_text("the end\n")
    target, elsewhere = target_for(stopped, None, None), target_for(stopped, "http://gpu-1:8002/metrics", None)
    assert (str(log), str(tmp_path.resolve() / "repo.run.json")) == (target.log, target.missing_record)
    assert "" == elsewhere.missing_record


def test_a_url_wins_and_keeps_the_grace(tmp_path: Path) -> None:
    """The URL given is asked; the grace and the start still come from the repository."""
    target = target_for(repository(tmp_path, FACTS, RECORD), "http://gpu-1:8002/metrics", None)
    assert ("http://gpu-1:8002/metrics", 45.0, 4711) == (target.url, target.start_grace_seconds, target.pid)


def test_an_empty_url_is_not_replaced() -> None:
    """A URL from a variable that is not set must not lead to another server."""
    assert "" == target_for(None, "", profile()).url


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9002/metrics"),
        ("0.0.0.0", "http://127.0.0.1:9002/metrics"),
        ("::", "http://[::1]:9002/metrics"),
        ("fd00::1", "http://[fd00::1]:9002/metrics"),
        ("gpu-1", "http://gpu-1:9002/metrics"),
    ],
)
def test_a_profile_alone_gives_host_and_port(host: str, url: str) -> None:
    """The profile's address is asked; what it binds to everywhere is asked on loopback."""
    target = target_for(None, None, profile(host=host, metrics_port=9002, start_grace="90s"))
    assert Target(url, 90.0, None, None) == target


def test_nothing_given_is_a_usage_error() -> None:
    """Without anything that names a server there is nothing to check, and every option that would is named."""
    with pytest.raises(UsageError, match="nothing says which server") as raised:
        target_for(None, None, None)
    for option in ("--url", "--repository", "--profile", "--targets", "--discover"):
        assert option in str(raised.value)


@pytest.mark.parametrize("record", ["{", "[]", "\x00"])
def test_a_record_that_cannot_be_read_is_an_error(tmp_path: Path, record: str) -> None:
    """A broken run record is named, not guessed around."""
    with pytest.raises(ManifestError, match=r"repo\.run\.json"):
        target_for(repository(tmp_path, FACTS, record), None, None)


@pytest.mark.parametrize(
    "record", [{}, {"pid": "x", "started_at": True, "urls": 3}, {"pid": -4, "urls": {"metrics": 8}}]
)
def test_values_of_the_wrong_type_are_not_used(tmp_path: Path, record: dict[str, Any]) -> None:
    """What a record does not hold in its proper type counts as not recorded."""
    target = target_for(repository(tmp_path, FACTS, record), None, None)
    assert ("http://127.0.0.1:18002/metrics", 45.0, None, None, "") == (
        target.url, target.start_grace_seconds, target.started_at, target.pid, target.log
    )  # fmt: skip


def test_a_folder_that_is_no_repository_is_an_error(tmp_path: Path) -> None:
    """A folder without a manifest, or of another kind, is refused."""
    with pytest.raises(ManifestError):
        target_for(tmp_path, None, None)
