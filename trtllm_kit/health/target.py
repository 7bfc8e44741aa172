"""Where to look: the address, and since when the server runs, from what ``deploy`` and the running server recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.errors import ManifestError, UsageError, storage_error
from trtllm_kit.health.snapshot import Target
from trtllm_kit.spec.profile import DeployProfile

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what a server binds is not what a client asks
METRICS_PATH = "/metrics"


def target_for(repository: Path | None, url: str | None, profile: DeployProfile | None) -> Target:
    """Return the server to check.

    The address is ``url``, else what the running server of ``repository`` recorded in ``<repository>.run.json``,
    else the port in the repository's manifest, else the profile's. The grace is the manifest's, else the profile's.
    Raises ``UsageError`` when nothing says where to look, ``ManifestError`` or ``StorageError`` for what is recorded
    and cannot be read.
    """
    manifest = read_manifest(repository, "repository") if repository is not None else None
    facts = manifest.facts if manifest is not None else {}
    record = _run_record(repository) if repository is not None else {}
    host = profile.serve.host if profile is not None else "127.0.0.1"
    address = url if url is not None else _recorded_url(record) or _address_of(facts, host)
    if address is None and profile is not None:
        address = _metrics_url(host, profile.serve.metrics_port)
    if address is None:
        raise UsageError(
            "nothing says which server to check",
            why="none of --url, --repository, --profile, --targets and --discover was given",
            hint="trtkit check-health --url http://127.0.0.1:8002/metrics",
        )
    profile_grace = profile.serve.start_grace if profile is not None else 0.0
    log, missing_record = _left_by_server(repository, record) if repository is not None else ("", "")
    return Target(
        url=address,
        start_grace_seconds=_number(facts.get("start_grace_seconds"), profile_grace),
        started_at=_number(record.get("started_at"), None),
        pid=_pid(record.get("pid")),
        ranks=_ranks(record.get("ranks")) if url is None else (),
        log=log,
        missing_record=missing_record if url is None else "",
        expired=_expired(manifest, record) if manifest is not None and url is None else "",
    )


def _expired(manifest: Manifest, record: Mapping[str, Any]) -> str:
    """Say why what runs is not what the repository holds: it was deployed anew since the server was started."""
    running = record.get("digest")
    if not isinstance(running, str) or not running or running == manifest.digest:
        return ""
    return (
        f"the server runs an older repository ({running[:12]}) than the one that was deployed ({manifest.digest[:12]})"
    )


def _left_by_server(repository: Path, record: Mapping[str, Any]) -> tuple[str, str]:
    """Name the log of a repository's server, running or ended, and the run record when there is none."""
    log = record.get("log")
    if isinstance(log, str):
        return log, ""
    beside = _beside(repository, ".server.log")
    return str(beside) if beside.is_file() else "", "" if record else str(_beside(repository, ".run.json"))


def _beside(repository: Path, ending: str) -> Path:
    folder = repository.resolve()
    return folder.with_name(folder.name + ending)


def _run_record(repository: Path) -> Mapping[str, Any]:
    """Read the run record; empty when no server was started from here."""
    path = _beside(repository, ".run.json")
    try:
        record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error(error, "reading the record of the running server") from None
    except ValueError as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(record, dict):
        raise _unreadable(path, "it is not a JSON object")
    return record


def _unreadable(path: Path, why: str) -> ManifestError:
    return ManifestError(
        f"the record of the running server {path} cannot be read",
        why=why,
        hint=f"give --url, or remove {path} when no server runs",
    )


def _recorded_url(record: Mapping[str, Any]) -> str | None:
    urls = record.get("urls")
    url = urls.get("metrics") if isinstance(urls, dict) else None
    return url if isinstance(url, str) else None


def _address_of(facts: Mapping[str, Any], host: str) -> str | None:
    ports = facts.get("ports")
    port = ports.get("metrics") if isinstance(ports, dict) else None
    return _metrics_url(host, port) if isinstance(port, int) else None


def _metrics_url(host: str, port: int) -> str:
    reached = _ANY_ADDRESS.get(host, host)
    return f"http://{f'[{reached}]' if ':' in reached else reached}:{port}{METRICS_PATH}"


def _number(value: Any, instead: float | None) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else instead


def _pid(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _ranks(values: Any) -> tuple[int, ...]:
    return tuple(pid for pid in map(_pid, values) if pid is not None) if isinstance(values, list) else ()
