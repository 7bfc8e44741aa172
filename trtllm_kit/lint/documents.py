"""Lints an LLM-API YAML document, alone or as the ``model.yaml`` of a Triton model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import Kind
from trtllm_kit.lint.read import not_read, read_bytes
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.plan.given.documents import document, metrics
from trtllm_kit.plan.given.values import values
from trtllm_kit.yaml_lines import Yaml, YamlError, parse_yaml

_PYTORCH = ("pytorch", None)


def lint_document(path: Path, kind: str, context: Context) -> Read:
    """Lint one document; raises ``NotLinted`` for what is no YAML mapping, and ``StorageError``."""
    try:
        read = parse_yaml(read_bytes(path))
    except YamlError as error:
        raise not_read(path, f"it is no YAML that a server loads: {error}") from None
    release, said_by = context.settle(None)
    facts = {"keys": len(read.places), "backend": str(read.data.get("backend", "pytorch"))}
    found = list(document_findings(read, path.name, release))
    if kind == Kind.DOCUMENT and _watched(context):
        found += located(metrics(read.data, release), path.name, read.places)
    return Read(kind, release, said_by, facts, in_order(found))


def _watched(context: Context) -> bool:
    """Whether the profile asks for alerts of its own, so that somebody reads the server's metrics."""
    alerts = context.loaded.profile.alerts if context.loaded is not None else {}
    return any(one.enabled is not False for one in alerts.values())


def document_findings(read: Yaml, file: str, release: str, own: frozenset[str] = frozenset()) -> Iterator[Located]:
    """Yield what the rules say of a document; keys of ``own`` are not the LLM API's.

    The tables know the PyTorch backend's keys; what another one takes is not judged.
    """
    for key, first, last in read.twice:
        yield Located(twice(key, first, last), file, last)
    given: Mapping[str, Any] = {key: value for key, value in read.data.items() if key not in own}
    if given.get("backend") in _PYTORCH:
        yield from located(document(given, release), file, read.places)
        yield from located(values(given, release), file, read.places)


def twice(key: str, first: int, last: int) -> Finding:
    """PF24: say that a dotted key stands on two lines."""
    return Finding(
        rule="PF24",
        severity=Severity.WARNING,
        message=f"{key} stands twice, and the last one is taken.",
        compared=f"{key} on lines {first} and {last}",
        suggestion=f"leave one {key}",
    )
