"""Target ``kubernetes``: one pod a replica, or a group of pods where a replica spans nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from trtllm_kit.serve.targets.documents import yaml_text
from trtllm_kit.serve.targets.groups import LEADER, group_objects, group_scripts
from trtllm_kit.serve.targets.monitors import monitor_objects
from trtllm_kit.serve.targets.objects import REPOSITORY_PATH, VOLUME, Object, labels, made
from trtllm_kit.serve.targets.pods import ROLE, SCRIPT, pod, serving_container
from trtllm_kit.serve.targets.scaling import scaling_objects, scaling_problems
from trtllm_kit.serve.targets.server import EVERY_ADDRESS, rank_commands, served
from trtllm_kit.serve.targets.shell import Comment, Line, Output, Run, Script, Self, Set, Var
from trtllm_kit.serve.targets.storage import build_seconds, claim_objects, files_object, job_name, job_objects, volumes
from trtllm_kit.serve.targets.subject import RUNTIMES_IN_CONTAINER, Files, Subject
from trtllm_kit.units import MIB, format_bytes

BUILD = "build.yaml"
_LARGEST_CONFIG = MIB
"""A ConfigMap holds no more."""


def kubernetes_files(subject: Subject) -> Files:
    """Return the manifests and the script that applies them.

    Raises ``ProfileError`` with everything that stands in the way.
    """
    subject.check("kubernetes", pod_problems(subject))
    scripts = group_scripts(subject) if subject.nodes > 1 else {SCRIPT: _serve_script(subject)}
    groups = {
        "storage.yaml": claim_objects(subject),
        "files.yaml": [files_object(subject, scripts)],
        BUILD: job_objects(subject),
        "servers.yaml": group_objects(subject, scripts) if subject.nodes > 1 else [_deployment(subject, scripts)],
        "service.yaml": [_service(subject), _budget(subject), *_route(subject)],
        "scaling.yaml": scaling_objects(subject),
        "monitoring.yaml": monitor_objects(subject),
    }
    filled = {name: objects for name, objects in groups.items() if objects}
    head = f"Serves {subject.name} with TensorRT-LLM {subject.version}; made by trtkit deploy."
    files = {name: yaml_text(*objects, head=head) for name, objects in filled.items()}
    return files | {"apply.sh": _apply(subject, list(filled)).text()}


def kubernetes_command(_subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that apply everything in its order."""
    return ("sh", f"{folder}/apply.sh")


def pod_problems(subject: Subject) -> Iterator[str]:
    """Yield what stands in the way of pods that serve a plan."""
    path = subject.plan.serve.checkpoint_path
    if path is None or not _beneath(path, VOLUME):
        yield f"serve.checkpoint_path: found {path!r}; a pod sees the volume with the checkpoint at {VOLUME}"
    engine = subject.plan.serve.engine_path
    if subject.engines and (engine is None or not _beneath(engine, VOLUME)):
        yield f"serve.engine_path: found {engine!r}; a pod sees the volume with the engine at {VOLUME}"
    if subject.runtime not in RUNTIMES_IN_CONTAINER and subject.deploy.image is None:
        yield (f"deploy.image: missing; runtime {subject.runtime} imports trtkit, which the release's container lacks")
    if subject.deploy.volume_image is not None and subject.deploy.volume_claim is not None:
        yield "deploy.volume_image: given beside deploy.volume_claim; the checkpoint is in one of them"
    size = sum(len(text.encode()) for text in subject.repository.values())
    if size > _LARGEST_CONFIG:
        yield f"the repository: {format_bytes(size)} of files, and a ConfigMap holds {format_bytes(_LARGEST_CONFIG)}"
    yield from scaling_problems(subject)


def _beneath(path: str, folder: str) -> bool:
    parts = PurePosixPath(path).parts
    return ".." not in parts and PurePosixPath(folder) in PurePosixPath(path).parents


def _serve_script(subject: Subject) -> str:
    return Script((served(subject, rank_commands(subject, REPOSITORY_PATH, EVERY_ADDRESS)),)).text()


def _deployment(subject: Subject, scripts: Files) -> Object:
    """Return one pod a replica; a new one takes the place of an old one, for there are no GPUs to spare."""
    spec = {
        "replicas": subject.replicas,
        "selector": {"matchLabels": labels(subject)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "progressDeadlineSeconds": int(subject.start_seconds) + subject.grace_seconds + 300,
        "template": pod(subject, [serving_container(subject)], volumes(subject, scripts)),
    }
    return made(subject, "Deployment", subject.name, {"spec": spec})


def _service(subject: Subject) -> Object:
    ports = [{"name": name, "port": number, "targetPort": name} for name, number in subject.ports.items()]
    return made(subject, "Service", subject.name, {"spec": {"selector": serving_labels(subject), "ports": ports}})


def _budget(subject: Subject) -> Object:
    """Let one replica at a time be moved: with a single one too, or its node could never be emptied."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": serving_labels(subject)}}
    return made(subject, "PodDisruptionBudget", subject.name, {"spec": spec})


def _route(subject: Subject) -> list[Object]:
    if subject.deploy.gateway is None:
        return []
    backend = {"name": subject.name, "port": subject.ports["http"]}
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/v2"}}], "backendRefs": [backend]}
    spec = {"parentRefs": [{"name": subject.deploy.gateway}], "rules": [rule]}
    return [made(subject, "HTTPRoute", subject.name, {"spec": spec})]


def serving_labels(subject: Subject) -> dict[str, str]:
    """Return the labels of the pods that open ports: all, or the leaders of groups."""
    return labels(subject) | ({ROLE: LEADER} if subject.nodes > 1 else {})


def _apply(subject: Subject, names: list[str]) -> Script:
    """Apply the files in order; engines are built before the servers that read them start."""
    here = Output(("dirname", "--", Output(("readlink", "-f", "--", Self()))))
    lines: list[Line] = [
        Comment("Applies everything, on the server's side: the repository is longer than an annotation may be."),
        Set("TRTKIT_HERE", here, export=False),
    ]
    runs: list[Line] = []
    for name in names:
        words = ("kubectl", "apply", "--server-side", "--filename", (Var("TRTKIT_HERE"), f"/{name}"))
        runs.append(Run(words))
        if name == BUILD:
            runs.append(_built(subject))
    return Script((*lines, *runs))


def _built(subject: Subject) -> Run:
    namespace = () if subject.deploy.namespace is None else ("--namespace", subject.deploy.namespace)
    limit = f"--timeout={build_seconds(subject)}s"
    return Run(("kubectl", "wait", *namespace, "--for=condition=complete", limit, f"job/{job_name(subject)}"))
