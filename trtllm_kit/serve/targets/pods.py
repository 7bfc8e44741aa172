"""The pods of a deployment: container, volumes, probes, where they run and how they end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trtllm_kit.serve.targets.objects import (
    FILES,
    VOLUME,
    Object,
    environment,
    labels,
    made,
    quantity,
)
from trtllm_kit.serve.targets.server import MODEL
from trtllm_kit.serve.targets.subject import PRE_STOP_SECONDS, Subject
from trtllm_kit.upstream.deployment import gpu_label

SERVER = "server"
"""Name of the container."""
SCRIPT = "serve.sh"
SHARED_MEMORY: Object = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108  # where shared memory is
ROLE = "trtkit/role"
"""Label that tells a group's leader from its workers."""
PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
_PROBE_SECONDS = 10


def serving_container(subject: Subject) -> Object:
    """Return the container that opens the ports: probed, and still serving for a while when it is told to end."""
    ports = [{"name": name, "containerPort": number} for name, number in subject.ports.items()]
    quiet = {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_SECONDS)]}}}
    return container(subject, ["sh", f"{FILES}/{SCRIPT}"]) | {"ports": ports, **probes(subject), "lifecycle": quiet}


def container(subject: Subject, command: Sequence[str]) -> Object:
    """Return a container with the GPUs of one node of a replica."""
    mounts = [
        {"name": "files", "mountPath": FILES, "readOnly": True},
        {"name": "models", "mountPath": VOLUME, "readOnly": True},
        SHARED_MEMORY,
    ]
    found: Object = {"name": SERVER, "image": subject.image, "command": list(command)}
    variables = environment(subject)
    if variables:
        found["env"] = variables
    found["resources"] = resources(subject)
    found["securityContext"] = _security(subject)
    return found | {"volumeMounts": mounts}


def resources(subject: Subject) -> Object:
    """Return what a pod asks for: its GPUs, the CPUs and memory that the profile names, and a claim of NVLink."""
    wanted: Object = {}
    requests: Object = {}
    if subject.deploy.cpu is not None:
        requests["cpu"] = str(subject.deploy.cpu)
    if subject.deploy.memory is not None:
        requests["memory"] = quantity(subject.deploy.memory)
    if requests:
        wanted["requests"] = requests
    if subject.on_gpus:
        wanted["limits"] = {GPU: str(subject.gpus_per_node)}
    if subject.over_nvlink:
        wanted["claims"] = [{"name": "nvlink"}]
    return wanted


def probes(subject: Subject) -> Object:
    """Return the three probes.

    No port is open before the models are loaded, so the start has a probe of its own that waits for the model as long
    as the profile lets it. A server that answers is alive; it is ready while its model is.
    """
    model = {"httpGet": {"path": f"/v2/models/{_front(subject)}/ready", "port": "http"}}
    alive = {"httpGet": {"path": "/v2/health/live", "port": "http"}}
    beat: Object = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 5}
    tries = math.ceil(subject.start_seconds / _PROBE_SECONDS)
    return {
        "startupProbe": model | beat | {"failureThreshold": tries},
        "livenessProbe": alive | beat | {"failureThreshold": 6},
        "readinessProbe": model | beat | {"failureThreshold": 2},
    }


def pod(subject: Subject, containers: Sequence[Object], volumes: Sequence[Object], role: str = "") -> Object:
    """Return a template of pods with these containers and volumes."""
    deploy = subject.deploy
    spec: Object = {"terminationGracePeriodSeconds": subject.grace_seconds, "automountServiceAccountToken": False}
    if deploy.pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": deploy.pull_secret}]
    chosen = node_selector(subject)
    if chosen:
        spec["nodeSelector"] = chosen
    if subject.on_gpus:
        spec["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if subject.over_nvlink:
        spec["resourceClaims"] = nvlink_claims(subject)
        spec["affinity"] = _one_domain(subject)
    spec |= {"containers": list(containers), "volumes": list(volumes)}
    marks = labels(subject) | ({ROLE: role} if role else {})
    return {"metadata": {"labels": marks}, "spec": spec}


def node_selector(subject: Subject) -> dict[str, str]:
    """Return the labels of the nodes to run on: the GPU's product, and the profile's own."""
    product = gpu_label(subject.hardware.gpu.name) if subject.on_gpus else None
    return ({PRODUCT: product} if product else {}) | dict(subject.deploy.node_selector)


def nvlink_claims(subject: Subject) -> list[Object]:
    """Return the claim by which a pod joins the NVLink domain of the deployment."""
    return [{"name": "nvlink", "resourceClaimTemplateName": _nvlink(subject)}]


def nvlink_objects(subject: Subject) -> list[Object]:
    """Return the domain of NVLink over nodes, where ranks have one.

    It is of 0 nodes: then no pod waits for another, and replicas may come and go.
    """
    if not subject.over_nvlink:
        return []
    spec = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": _nvlink(subject)}}}
    return [made(subject, "ComputeDomain", _nvlink(subject), {"spec": spec})]


def _nvlink(subject: Subject) -> str:
    return f"{subject.name}-nvlink"


def _front(subject: Subject) -> str:
    """Return the model that clients ask."""
    return "ensemble" if subject.engines else MODEL


def _security(subject: Subject) -> Object:
    """Forbid more rights than the container starts with; ranks on several nodes pin memory for the network."""
    pinned = {"capabilities": {"add": ["IPC_LOCK"]}} if subject.nodes > 1 else {}
    return {"allowPrivilegeEscalation": False, **pinned}


def _one_domain(subject: Subject) -> Object:
    """Keep the pods of one group in one NVLink domain; groups may share one."""
    term = {
        "topologyKey": "nvidia.com/gpu.clique",
        "labelSelector": {"matchLabels": labels(subject)},
        "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-key"],
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
