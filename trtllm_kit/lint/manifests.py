"""Lints manifests of Kubernetes: the probes of a server and the memory that its processes share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.lint.context import Context
from trtllm_kit.lint.launched import CONTAINER_SHM, SHM
from trtllm_kit.lint.read import not_read, read_bytes
from trtllm_kit.lint.report import Located, Read, in_order
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.yaml_lines import Document, YamlError, documents
from trtllm_kit.yaml_lines import Path as Place

_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|k|M|G)?")
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 10**3, "M": 10**6, "G": 10**9}
_GPU = "nvidia.com/gpu"
_MOST_LEVELS = 12


def lint_manifest(path: Path, kind: str, context: Context) -> Read:
    """Lint the documents of one file; raises ``NotLinted`` for what is no YAML, and ``StorageError``."""
    try:
        read = documents(read_bytes(path))
    except YamlError as error:
        raise not_read(path, f"it is no YAML that a cluster takes: {error}") from None
    release, said_by = context.settle(None)
    found = [(document, place) for document in read for place in pods(document.value)]
    said = [one for document, place in found for one in _of_pod(document, place, path.name, release)]
    facts = {"documents": len(read), "pods": len(found)}
    return Read(kind, release, said_by, facts, in_order(said))


def pods(value: object, path: Place = ()) -> Iterator[Place]:
    """Yield the places of what has containers, however deep a kind of the cluster holds it."""
    if len(path) > _MOST_LEVELS:
        return
    if isinstance(value, Mapping) and isinstance(value.get("containers"), list):
        yield path
        return
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from pods(inner, (*path, key))


def _of_pod(document: Document, place: Place, file: str, release: str) -> Iterator[Located]:
    pod = _mapping(document.at(place))
    for number, container in enumerate(_list(pod.get("containers"))):
        if not isinstance(container, Mapping) or not _asks_gpus(container):
            continue
        here = (*place, "containers", number)
        probe = document.line((*here, "livenessProbe", "httpGet", "path"))
        asked = launch(LaunchFacts(release, liveness_path=_path(container)))
        yield from (Located(finding, file, probe) for finding in asked)
        given = _above(document, place)
        shared = launch(LaunchFacts(release, shm_bytes=_shared_memory(pod, container) if given is None else given))
        yield from (Located(finding, file, document.line(here)) for finding in shared)


def _asks_gpus(container: Mapping[str, Any]) -> bool:
    resources = _mapping(container.get("resources"))
    return any(_GPU in _mapping(resources.get(name)) for name in ("limits", "requests"))


def _path(container: Mapping[str, Any]) -> str | None:
    """Return what the liveness probe asks for."""
    path = _mapping(_mapping(container.get("livenessProbe")).get("httpGet")).get("path")
    return path if isinstance(path, str) else None


def _above(document: Document, place: Place) -> int | None:
    """Return the bytes of /dev/shm that what holds a pod asks for (``sharedMemorySize``); None where it says nothing.

    An operator makes the volume of it, so the pod itself has none.
    """
    around = (_mapping(document.at(place[:end])) for end in range(len(place) - 1, -1, -1))
    sizes = (one.get("sharedMemorySize", _mapping(one.get("sharedMemory")).get("size")) for one in around)
    return next((_bytes(size) for size in sizes if size is not None), None)


def _bytes(quantity: object) -> int | None:
    match = _QUANTITY.fullmatch(str(quantity))
    return int(match[1]) * _UNITS[match[2] or ""] if match else None


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
    return _bytes(volume.get("sizeLimit", ""))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
