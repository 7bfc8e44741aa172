"""What every object of a cluster has: kind, name, labels; and texts as a pod takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.units import GIB, MIB
from trtllm_kit.upstream.deployment import api_of

Object = dict[str, Any]
VOLUME = "/models"
"""Where pods see the volume with checkpoints and engines."""
CHECKPOINT_PATH, ENGINE_PATH, DRAFT_PATH = f"{VOLUME}/checkpoint", f"{VOLUME}/engine", f"{VOLUME}/draft"
FILES, REPOSITORY_PATH = "/trtkit", "/trtkit/repository"
"""A volume of a ConfigMap has folders of its own at its root, which Triton would take for models."""


def labels(subject: Subject) -> dict[str, str]:
    """Return the labels of every object, by which services, budgets and monitors find the pods."""
    return {"app.kubernetes.io/name": "tritonserver", "app.kubernetes.io/instance": subject.name}


def made(subject: Subject, kind: str, name: str, body: Mapping[str, Any]) -> Object:
    """Return one object: kind, metadata, and the rest of it."""
    namespace = {} if subject.deploy.namespace is None else {"namespace": subject.deploy.namespace}
    metadata = {"name": name, **namespace, "labels": labels(subject) | {"app.kubernetes.io/managed-by": "trtkit"}}
    return {"apiVersion": api_of(kind), "kind": kind, "metadata": metadata, **body}


def literal(text: str) -> str:
    """Return text that a pod takes as it stands: in commands and variables ``$(NAME)`` would be replaced."""
    return text.replace("$", "$$")


def environment(subject: Subject) -> list[Object]:
    """Return the variables of a container; those that are secrets name the Secret that holds them."""
    given: list[Object] = [{"name": name, "value": literal(value)} for name, value in subject.plan.variables.items()]
    for name, place in subject.deploy.secret_environment.items():
        secret, _, key = place.partition("/")
        given.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return given


def quantity(size: int) -> str:
    """Write bytes as Kubernetes does: in whole Gi or Mi, rounded up."""
    unit, name = (GIB, "Gi") if size % GIB == 0 else (MIB, "Mi")
    return f"{-(-size // unit)}{name}"
