"""Lints manifests of Kubernetes: the probes of a server and the memory that its processes share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.lint.context import Context
from trtllm_kit.lint.launched import CONTAINER_SHM, SHM
from trtllm_kit.lint.read import not_read, read_bytes
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.lint.yaml_text import Yaml, YamlError, parse_yaml
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.launches import launch

_NEXT = re.compile(rb"^---[^\n]*$", re.MULTILINE)
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|k|M|G)?")
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 10**3, "M": 10**6, "G": 10**9}
_GPU = "nvidia.com/gpu"
_MOST_LEVELS = 12


def lint_manifest(path: Path, kind: str, context: Context) -> Read:
    """Lint the documents of one file; raises ``NotLinted`` for what is no YAML, and ``StorageError``."""
    try:
        documents = [parse_yaml(part) for part in _parts(read_bytes(path))]
    except YamlError as error:
        raise not_read(path, f"it is no YAML that a cluster takes: {error}") from None
    release, said_by = context.settle(None)
    pods = [(read, pod) for read in documents for pod in _pods(read.data)]
    found = [one for read, pod in pods for one in _of_pod(pod, read, path.name, release)]
    facts = {"documents": len(documents), "pods": len(pods)}
    return Read(kind, release, said_by, facts, in_order(found))


def _parts(raw: bytes) -> Iterator[bytes]:
    """Yield the documents of a file, each behind as many empty lines as it stands lines from the top."""
    at = 0
    for match in (*_NEXT.finditer(raw), None):
        end = match.start() if match else len(raw)
        if raw[at:end].strip():
            yield b"\n" * raw.count(b"\n", 0, at) + raw[at:end]
        at = match.end() if match else end


def _pods(value: object, level: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield what has containers, however deep a kind of the cluster holds it."""
    if level > _MOST_LEVELS:
        return
    if isinstance(value, Mapping) and isinstance(value.get("containers"), list):
        yield value
        return
    inside = value.values() if isinstance(value, Mapping) else _list(value)
    for inner in inside:
        yield from _pods(inner, level + 1)


def _of_pod(pod: Mapping[str, Any], read: Yaml, file: str, release: str) -> Iterator[Located]:
    for container in pod["containers"]:
        if not isinstance(container, Mapping) or not _asks_gpus(container):
            continue
        facts = LaunchFacts(release, liveness_path=_path(container), shm_bytes=_shared_memory(pod, container))
        yield from located(launch(facts), file, read.places)


def _asks_gpus(container: Mapping[str, Any]) -> bool:
    resources = _mapping(container.get("resources"))
    return any(_GPU in _mapping(resources.get(name)) for name in ("limits", "requests"))


def _path(container: Mapping[str, Any]) -> str | None:
    """Return what the liveness probe asks for."""
    path = _mapping(_mapping(container.get("livenessProbe")).get("httpGet")).get("path")
    return path if isinstance(path, str) else None


def _shared_memory(pod: Mapping[str, Any], container: Mapping[str, Any]) -> int | None:
    """Return the bytes of a container's /dev/shm; None where it has the host's, or where nobody bounds it."""
    if pod.get("hostIPC") is True:
        return None
    mounts = [_mapping(one) for one in _list(container.get("volumeMounts"))]
    name = next((one.get("name") for one in mounts if one.get("mountPath") == SHM), None)
    if name is None:
        return CONTAINER_SHM
    volumes = (_mapping(one) for one in _list(pod.get("volumes")))
    volume = next((_mapping(one.get("emptyDir")) for one in volumes if one.get("name") == name), {})
    match = _QUANTITY.fullmatch(str(volume.get("sizeLimit", "")))
    return int(match[1]) * _UNITS[match[2] or ""] if match else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
