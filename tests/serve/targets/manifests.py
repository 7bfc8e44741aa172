"""Strict checks of manifests: Kubernetes' own schemas, those of custom resources, and the names both let through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.serve.targets.crds import SCHEMAS

kubernetes_validate = pytest.importorskip("kubernetes_validate")

VERSION = "1.34"
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
LONGEST_OF = {"LeaderWorkerSet": 45, "Deployment": 47, "Job": 63, "DynamoGraphDeployment": 45}
"""Longest names, beside 63: what is made of them is a label's value too, with a suffix."""


def check(one: dict[str, Any]) -> None:
    """Fail for an object that the cluster would refuse."""
    schema = SCHEMAS.get(one["kind"])
    if schema is None:
        kubernetes_validate.validate(one, VERSION, strict=True)
    else:
        jsonschema.validate(one, schema)
    for template in templates(one):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}, "template": template}
        kubernetes_validate.validate(pod, VERSION, strict=True)
        check_pod(template["spec"])
    check_names(one)


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every template of pods in an object."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("template", "podTemplate", "leaderTemplate", "workerTemplate") and "spec" in inner:
                yield inner
            else:
                yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def check_names(one: dict[str, Any]) -> None:
    """Fail for a name, namespace or label that the schema lets through and the cluster does not."""
    kind, metadata = one["kind"], one["metadata"]
    form = SERVICE if kind == "Service" else LABEL
    assert form.fullmatch(metadata["name"]), metadata["name"]
    assert len(metadata["name"]) <= LONGEST_OF.get(kind, 63), metadata["name"]
    assert "namespace" not in metadata or LABEL.fullmatch(metadata["namespace"])
    assert metadata.get("namespace") != "None"
    for value in metadata["labels"].values():
        assert LABEL_VALUE.fullmatch(value), value


def check_pod(spec: dict[str, Any]) -> None:
    """Fail for a pod whose parts do not fit together."""
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    claims = {claim["name"] for claim in spec.get("resourceClaims", [])}
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        assert {claim["name"] for claim in container.get("resources", {}).get("claims", [])} <= claims
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
        ports = {port["name"] for port in container.get("ports", [])}
        assert all(len(name) <= 15 for name in ports)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports
    for volume in spec.get("volumes", []):
        for item in volume.get("configMap", {}).get("items", []):
            assert re.fullmatch(r"[-._a-zA-Z0-9]+", item["key"])
            assert ".." not in item["path"].split("/")
