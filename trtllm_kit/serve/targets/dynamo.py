"""Target ``dynamo``: DynamoGraphDeployments of the same plan, aggregated, and disaggregated where asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.serve.targets.documents import yaml_text
from trtllm_kit.serve.targets.objects import CHECKPOINT_PATH, VOLUME, Object, environment, literal, made, quantity
from trtllm_kit.serve.targets.pods import GPU, node_selector, nvlink_claims, nvlink_objects, resources
from trtllm_kit.serve.targets.storage import claim_objects, models_volume
from trtllm_kit.serve.targets.subject import Files, Subject
from trtllm_kit.upstream.deployment import dynamo_image, dynamo_releases
from trtllm_kit.upstream.llm_api import llm_api_key

MOST_NAME = 45
"""Most characters of a graph's name and a component's together; Grove refuses more."""
AGGREGATED, DISAGGREGATED = "aggregated.yaml", "disaggregated.yaml"
_SETTINGS = "/settings"
_SUFFIX = "-disagg"
_COMPONENTS = ("frontend", "worker", "prefill", "decode")


def dynamo_files(subject: Subject) -> Files:
    """Return the graphs; raises ``ProfileError`` with everything that stands in the way."""
    subject.check("dynamo", _problems(subject), image=False)
    head = f"Serves {subject.name} with TensorRT-LLM {subject.version} under Dynamo; made by trtkit deploy."
    claim = [*claim_objects(subject), *nvlink_objects(subject)]
    whole = {"worker": (subject.replicas, "worker", _settings(subject))}
    files = {AGGREGATED: yaml_text(*claim, *_graph(subject, subject.name, whole), head=head)}
    if subject.deploy.prefill_replicas is not None:
        apart = {
            "prefill": (subject.deploy.prefill_replicas, "prefill", _settings(subject, "prefill")),
            "decode": (subject.replicas - subject.deploy.prefill_replicas, "decode", _settings(subject, "decode")),
        }
        files[DISAGGREGATED] = yaml_text(*claim, *_graph(subject, subject.name + _SUFFIX, apart), head=head)
    return files


def dynamo_command(subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that apply one of the graphs: the one in which prompts are read apart, if it is asked for."""
    name = AGGREGATED if subject.deploy.prefill_replicas is None else DISAGGREGATED
    return ("kubectl", "apply", "--server-side", "--filename", f"{folder}/{name}")


def _problems(subject: Subject) -> Iterator[str]:
    if subject.engines or subject.plan.toolchain.value != "llm-api" or subject.runtime != "tensorrt_llm":
        yield (
            f"toolchain: {subject.plan.toolchain.value} with runtime {subject.runtime}; Dynamo runs what llm-api "
            "makes, on tensorrt_llm"
        )
    if subject.instances > 1:
        yield f"serve.instances: {subject.instances}; Dynamo has a worker of its own for each replica, leave it out"
    if _image(subject) is None:
        held = ", ".join(dynamo_releases())
        yield (
            f"deploy.dynamo_image: missing; no runtime of Dynamo is known to hold TensorRT-LLM {subject.version} "
            f"(those that are hold {held})"
        )
    if subject.plan.serve.checkpoint_path is not None and not subject.plan.serve.checkpoint_path.startswith(VOLUME):
        yield f"serve.checkpoint_path: found {subject.plan.serve.checkpoint_path!r}; pods see the volume at {VOLUME}"
    longest = max(map(len, _COMPONENTS)) + (len(_SUFFIX) if subject.deploy.prefill_replicas is not None else 0)
    if len(subject.name) + longest > MOST_NAME:
        yield (
            f"deploy.name: {subject.name!r} has {len(subject.name)} characters, and {longest} for its components; "
            f"allowed are {MOST_NAME} together"
        )
    prefill = subject.deploy.prefill_replicas
    if prefill is not None and prefill >= subject.replicas:
        yield (
            f"deploy.prefill_replicas: {prefill} of {subject.replicas} replicas (parallelism.replicas) leave none "
            "that generates"
        )


def _image(subject: Subject) -> str | None:
    return subject.deploy.dynamo_image or dynamo_image(subject.version)


def _settings(subject: Subject, role: str = "") -> dict[str, Any]:
    """Return the LLM-API arguments of a worker; of two kinds, both can hand over a cache of the longest prompt."""
    document = {key: value for key, value in llm_api_document(subject.plan).items() if key != "model"}
    if not role:
        return document
    if role == "prefill" and llm_api_key(subject.version, "disable_overlap_scheduler") is not None:
        document["disable_overlap_scheduler"] = True  # a worker that only reads prompts has no steps to overlap
    transceiver: dict[str, Any] = {"backend": "DEFAULT"}
    if llm_api_key(subject.version, "cache_transceiver_config.max_tokens_in_buffer") is not None:
        transceiver["max_tokens_in_buffer"] = subject.plan.limits.max_seq_len.value
    said = document.get("cache_transceiver_config")
    return document | {"cache_transceiver_config": transceiver | (said if isinstance(said, dict) else {})}


_Workers = dict[str, tuple[int, str, dict[str, Any]]]
"""Components by name: how many copies, of which type, with which arguments."""


def _graph(subject: Subject, name: str, workers: _Workers) -> Iterator[Object]:
    texts = {f"{component}.yaml": yaml_text(settings) for component, (_, _, settings) in workers.items()}
    yield made(subject, "ConfigMap", f"{name}-settings", {"data": texts})
    components = [_frontend(subject)]
    for component, (replicas, kind, _) in workers.items():
        components.append(_worker(subject, name, component, replicas, kind))
    spec = {"backendFramework": "trtllm", "components": components}
    yield made(subject, "DynamoGraphDeployment", name, {"spec": spec})


def _frontend(subject: Subject) -> Object:
    command = ["python3", "-m", "dynamo.frontend", "--http-port", "8000"]
    main = {"name": "main", "image": _image(subject), "command": command}
    return {"name": "frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": _pod(subject, main, [])}}


def _worker(subject: Subject, graph: str, name: str, replicas: int, kind: str) -> Object:
    checkpoint = subject.plan.serve.checkpoint_path or CHECKPOINT_PATH
    args = ["--model-path", literal(checkpoint), "--served-model-name", subject.name]
    args += ["--extra-engine-args", f"{_SETTINGS}/{name}.yaml"]
    if kind != "worker":
        args += ["--disaggregation-mode", kind]
    main: Object = {
        "name": "main",
        "image": _image(subject),
        "command": ["python3", "-m", "dynamo.trtllm"],
        "args": args,
    }
    variables = environment(subject)
    if variables:
        main["env"] = variables
    main["resources"] = resources(subject)
    main["volumeMounts"] = [
        {"name": "models", "mountPath": VOLUME, "readOnly": True},
        {"name": "settings", "mountPath": _SETTINGS, "readOnly": True},
    ]
    volumes = [models_volume(subject), {"name": "settings", "configMap": {"name": f"{graph}-settings"}}]
    component: Object = {"name": name, "type": kind, "replicas": replicas}
    if subject.nodes > 1:
        component["multinode"] = {"nodeCount": subject.nodes}
    component["sharedMemorySize"] = quantity(subject.shm_bytes)
    spec = _pod(subject, main, volumes)
    chosen = node_selector(subject)
    if chosen:
        spec["nodeSelector"] = chosen
    spec["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    spec["terminationGracePeriodSeconds"] = subject.grace_seconds
    if subject.over_nvlink:
        spec["resourceClaims"] = nvlink_claims(subject)
    return component | {"podTemplate": {"spec": spec}}


def _pod(subject: Subject, main: Object, volumes: Sequence[Object]) -> Object:
    spec: Object = {"containers": [main]}
    if subject.deploy.pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": subject.deploy.pull_secret}]
    if volumes:
        spec["volumes"] = list(volumes)
    return spec
