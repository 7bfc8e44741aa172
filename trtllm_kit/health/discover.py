"""Targets that are found instead of named: pods of a cluster, what deploy wrote, a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtllm_kit.errors import UsageError, storage_error
from trtllm_kit.files import read_text
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.targets import read_targets

CLUSTER = "k8s:"
_PORT_NAMES = ("metrics", "http-metrics")
_PORT = 8002
_MONITORING = "prometheus.yaml"


def discover(where: str) -> list[Target]:
    """Return the targets of ``k8s:LABELS``, of a folder that ``deploy`` wrote, or of a JSON file.

    A folder is a model repository, with the ranks' processes of its server; one that holds repositories; or one that
    was written for Prometheus. A file holds targets, as ``--targets`` has them, or pods, as
    ``kubectl get pods -o json`` prints them.
    Raises ``UsageError`` where there is none, ``StorageError``, ``ProfileError``, ``ManifestError``, and what
    ``kubectl`` says.
    """
    if where.startswith(CLUSTER):
        from trtllm_kit.health.sources.kubectl import pods_json

        return _some(list(pods(_json(pods_json(where.removeprefix(CLUSTER)), where))), where)
    path = Path(where)
    if path.is_dir():
        found = list(scraped(_yaml(path / _MONITORING))) if (path / _MONITORING).is_file() else list(deployed(path))
        return _some(found, where)
    try:
        document = json.loads(read_text(path))
    except OSError as error:
        raise storage_error(error, "reading the targets") from None
    except (ValueError, RecursionError):
        return read_targets(path)  # which says what is wrong with it
    if isinstance(document, dict) and "items" in document:
        return _some(list(pods(document)), where)
    return read_targets(path)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the pods of {where} are not known",
            why=f"kubectl ended well and printed no JSON: {error}",
            hint=f"kubectl get pods -l {where.removeprefix(CLUSTER)} -o json",
        ) from None


def _some(targets: list[Target], where: str) -> list[Target]:
    if targets:
        return targets
    raise UsageError(
        f"{where} has no target",
        why="there is no running pod with an address in it, no static target, or no model repository",
        hint=f"{CLUSTER}app=NAME, a folder that trtkit deploy wrote, or a JSON file",
    )


def deployed(folder: Path) -> Iterator[Target]:
    """List the server of a model repository, or of each repository in a folder, by the repositories' names.

    Raises ``ManifestError`` and ``StorageError``.
    """
    from trtllm_kit.artifact import MANIFEST, read_manifest
    from trtllm_kit.health.target import target_for

    for one in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (one / MANIFEST).is_file() and read_manifest(one).kind == "repository":
            yield replace(target_for(one, None, None), name=one.resolve().name)


def pods(document: Any) -> Iterator[Target]:
    """List the running pods of ``kubectl get pods -o json``, each with its port ``metrics``, else 8002."""
    items = document.get("items") if isinstance(document, dict) else None
    for item in items if isinstance(items, list) else []:
        metadata, status, spec = (_part(item, key) for key in ("metadata", "status", "spec"))
        address = status.get("podIP")
        if status.get("phase") != "Running" or not isinstance(address, str):
            continue
        host = f"[{address}]" if ":" in address else address
        name = f"{metadata.get('namespace', 'default')}/{metadata.get('name', address)}"
        yield Target(f"http://{host}:{_metrics_port(spec)}/metrics", name=name)


def _part(item: Any, key: str) -> Mapping[str, Any]:
    part = item.get(key) if isinstance(item, dict) else None
    return part if isinstance(part, dict) else {}


def _metrics_port(spec: Mapping[str, Any]) -> int:
    for container in _mappings(spec.get("containers")):
        for port in _mappings(container.get("ports")):
            if port.get("name") in _PORT_NAMES and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return _PORT


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; of what is none, nothing."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def scraped(document: Any) -> Iterator[Target]:
    """List the static targets of a Prometheus configuration, without those of the DCGM exporter."""
    jobs = document.get("scrape_configs") if isinstance(document, dict) else None
    for job in _mappings(jobs):
        name = job.get("job_name", "")
        if name == "dcgm":
            continue
        path = job.get("metrics_path", "/metrics")
        for group in _mappings(job.get("static_configs")):
            addresses = group.get("targets")
            for address in addresses if isinstance(addresses, list) else []:
                yield Target(f"{job.get('scheme', 'http')}://{address}{path}", name=f"{name}/{address}")


def _yaml(path: Path) -> Any:
    from yaml import YAMLError

    from trtllm_kit.shipped_yaml import parse_yaml

    try:
        return parse_yaml(path)
    except OSError as error:
        raise storage_error(error, "reading the configuration of Prometheus") from None
    except (ValueError, YAMLError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path} cannot be read", why=str(error).splitlines()[0], hint="give a JSON file of targets")
