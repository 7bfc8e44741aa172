"""Where pods find what they serve: the repository in a ConfigMap, checkpoint and engines in a volume, and the build."""

from __future__ import annotations

from trtllm_kit.build.step import Link
from trtllm_kit.build.step import Run as BuildRun
from trtllm_kit.build.toolchain import steps
from trtllm_kit.plan.plan import digest_of
from trtllm_kit.serve.targets.objects import (
    CHECKPOINT_PATH,
    DRAFT_PATH,
    ENGINE_PATH,
    VOLUME,
    Object,
    literal,
    made,
)
from trtllm_kit.serve.targets.pods import SHARED_MEMORY, container, pod
from trtllm_kit.serve.targets.shell import Line, Run, Script, Set
from trtllm_kit.serve.targets.subject import Files, Subject
from trtllm_kit.units import GIB

_SPARE = 1.2
"""The claim's size over the bytes that are kept in it: file systems keep some for themselves."""


def files_object(subject: Subject, scripts: Files) -> Object:
    """Return the ConfigMap with the repository and scripts; its name changes with them, so a rollback finds its own."""
    texts = {**served(subject), **scripts}
    body = {"immutable": True, "data": {_key(path): text for path, text in texts.items()}}
    return made(subject, "ConfigMap", files_name(subject, scripts), body)


def files_name(subject: Subject, scripts: Files) -> str:
    """Return the name of the ConfigMap."""
    return f"{subject.name}-{digest_of(served(subject) | scripts)[:12]}"


def served(subject: Subject) -> Files:
    """Return the files that Triton reads, all of them in the folder of a model."""
    return {path: text for path, text in subject.repository.items() if "/" in path}


def volumes(subject: Subject, scripts: Files) -> list[Object]:
    """Return the volumes of a serving pod."""
    items: list[Object] = [{"key": _key(path), "path": f"repository/{path}"} for path in served(subject)]
    items += [{"key": _key(path), "path": path, "mode": 0o555} for path in scripts]
    return [
        {"name": "files", "configMap": {"name": files_name(subject, scripts), "items": items}},
        models_volume(subject),
        shared_memory(subject),
    ]


def claim_objects(subject: Subject) -> list[Object]:
    """Return the claim of the volume, unless one exists or an image stands in its place."""
    if subject.deploy.volume_claim is not None or subject.deploy.volume_image is not None:
        return []
    weights = sum(term.bytes for term in subject.plan.memory.terms if term.name.startswith(("weights", "scales")))
    size = weights * subject.plan.parallelism.world_size * _SPARE * (2 if subject.plan.build is not None else 1)
    shared = subject.nodes > 1 or subject.replicas > 1 or (subject.deploy.max_replicas or 1) > 1
    spec: Object = {"accessModes": ["ReadWriteMany" if shared else "ReadWriteOnce"]}
    if subject.deploy.storage_class is not None:
        spec["storageClassName"] = subject.deploy.storage_class
    spec["resources"] = {"requests": {"storage": f"{max(1, -(-int(size) // GIB))}Gi"}}
    return [made(subject, "PersistentVolumeClaim", _claim(subject), {"spec": spec})]


def builds(subject: Subject) -> bool:
    """Whether engines are built in the cluster: an image of them is built elsewhere."""
    return subject.plan.toolchain.value == "trtllm-build" and subject.deploy.volume_image is None


def job_name(subject: Subject) -> str:
    """Return the name of the job; another plan is another job."""
    return f"{subject.name}-build-{subject.plan.digest[:10]}"


def job_objects(subject: Subject) -> list[Object]:
    """Return the job that builds engines into the volume, for plans that need engines built."""
    if not builds(subject):
        return []
    script = Script(tuple(_build_lines(subject))).text()
    builder = container(subject, ["/bin/sh", "-c", literal(script)])
    builder["volumeMounts"] = [{"name": "models", "mountPath": VOLUME}, SHARED_MEMORY]
    template = pod(subject, [builder], [models_volume(subject), shared_memory(subject)])
    template["metadata"]["labels"]["app.kubernetes.io/name"] = "trtllm-build"
    template["spec"] |= {"restartPolicy": "Never"}
    for key in ("affinity", "resourceClaims"):
        template["spec"].pop(key, None)
    builder["resources"].pop("claims", None)
    seconds = build_seconds(subject)
    spec = {"backoffLimit": 0, "activeDeadlineSeconds": seconds, "template": template}
    return [made(subject, "Job", job_name(subject), {"spec": spec})]


def build_seconds(subject: Subject) -> int:
    """Return the longest a build may take, whole seconds."""
    return int(subject.plan.build.timeout_seconds.value) if subject.plan.build is not None else 0


def _build_lines(subject: Subject) -> list[Line]:
    """Return what the job runs: the builder's own steps, in the folder of the engine."""
    lines: list[Line] = [Run(("mkdir", "-p", ENGINE_PATH)), Run(("cd", ENGINE_PATH))]
    places = {"checkpoint": CHECKPOINT_PATH, "draft": DRAFT_PATH}
    for step in steps(subject.plan):
        if isinstance(step, Link):
            lines.append(Run(("ln", "-sfn", places[step.to], step.path)))
        elif isinstance(step, BuildRun):
            lines += [Set(name, value) for name, value in step.env.items()]
            lines.append(Run(step.argv))
    return lines


def models_volume(subject: Subject) -> Object:
    """Return the volume with checkpoint and engines: an image, a claim that exists, or the one that is written."""
    if subject.deploy.volume_image is not None:
        return {"name": "models", "image": {"reference": subject.deploy.volume_image, "pullPolicy": "IfNotPresent"}}
    return {"name": "models", "persistentVolumeClaim": {"claimName": subject.deploy.volume_claim or _claim(subject)}}


def shared_memory(subject: Subject) -> Object:
    """Return the volume that stands where processes share memory: a container's own has 64 MiB."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{subject.shm_bytes // GIB}Gi"}}


def _claim(subject: Subject) -> str:
    return f"{subject.name}-models"


def _key(path: str) -> str:
    """Return a file's key in a ConfigMap, which takes no slashes."""
    return path.replace("/", ".")
