"""Scaling by what the engine says of itself: the KV cache it uses, and the requests it holds of those it can hold.

Triton's own queue is empty while requests wait inside the engine, so nothing here looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtllm_kit.serve.targets.objects import Object, made
from trtllm_kit.serve.targets.subject import Subject

METRIC = "trtkit_engine_load"
"""What the rules record of how full an engine is, 0 to 1, and the cluster's metrics API is to offer."""
TARGET = 0.75
"""Where an engine is full enough for another one; below the alert of the KV cache."""
_COOL_SECONDS = 600
"""A server takes minutes to load, so one that is not needed stays for a while."""


def scaling_problems(subject: Subject) -> Iterator[str]:
    """Yield what keeps a deployment from growing as the profile says."""
    most = subject.deploy.max_replicas
    if most is not None and most < subject.replicas:
        yield f"deploy.max_replicas: {most}, and parallelism.replicas is {subject.replicas}"
    if most is not None and most * subject.world > subject.hardware.gpus and subject.on_gpus:
        yield (
            f"deploy.max_replicas: {most} replicas of {subject.world} GPUs are {most * subject.world}, "
            f"and {subject.hardware.name} has {subject.hardware.gpus}"
        )
    if subject.deploy.prometheus is not None and most is None:
        yield "deploy.prometheus: has no meaning without deploy.max_replicas; leave it out"


def scaling_objects(subject: Subject) -> list[Object]:
    """Return what changes the number of replicas: KEDA where a Prometheus is named, else the cluster's own scaler."""
    if subject.deploy.max_replicas is None:
        return []
    return [_keda(subject) if subject.deploy.prometheus is not None else _autoscaler(subject)]


def _target(subject: Subject) -> dict[str, str]:
    """Return what is scaled."""
    if subject.nodes > 1:
        return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": subject.name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name}


def _behaviour() -> dict[str, Any]:
    return {
        "scaleDown": {
            "stabilizationWindowSeconds": _COOL_SECONDS,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": _COOL_SECONDS}],
        }
    }


def _keda(subject: Subject) -> Object:
    query = f'sum({METRIC}{{job="{subject.name}"}})'
    metadata = {"serverAddress": subject.deploy.prometheus, "query": query, "threshold": str(TARGET)}
    trigger = {"type": "prometheus", "metricType": "AverageValue", "metadata": metadata}
    spec = {
        "scaleTargetRef": _target(subject),
        "minReplicaCount": subject.replicas,
        "maxReplicaCount": subject.deploy.max_replicas,
        "pollingInterval": 15,
        "cooldownPeriod": _COOL_SECONDS,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behaviour()}},
        "triggers": [trigger],
    }
    return made(subject, "ScaledObject", subject.name, {"spec": spec})


def _autoscaler(subject: Subject) -> Object:
    goal = {"type": "AverageValue", "averageValue": f"{round(TARGET * 1000)}m"}
    spec = {
        "scaleTargetRef": _target(subject),
        "minReplicas": subject.replicas,
        "maxReplicas": subject.deploy.max_replicas,
        "behavior": _behaviour(),
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": goal}}],
    }
    return made(subject, "HorizontalPodAutoscaler", subject.name, {"spec": spec})
