"""Target ``kubernetes``: manifests that a cluster takes, and what they say of starting, serving, draining, scaling."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.targets.manifests import check
from tests.serve.targets.support import CLUSTER, CPU, NODE, OF_ENGINES, RACK, in_pods, objects, of_kind
from tests.support.specs import profile
from trtllm_kit.errors import ProfileError
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.serve.targets.kubernetes import kubernetes_command, kubernetes_files
from trtllm_kit.serve.targets.pods import PRODUCT
from trtllm_kit.serve.targets.subject import PRE_STOP_SECONDS, Subject
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware

EVERYTHING = {
    "deploy.namespace": "llm",
    "deploy.pull_secret": "registry",
    "deploy.storage_class": "fast",
    "deploy.cpu": 32,
    "deploy.memory": "512 GiB",
    "deploy.max_replicas": 2,
    "deploy.gateway": "public",
    "deploy.node_selector": {"topology.kubernetes.io/zone": "a", "pool": "gpu"},
    "deploy.secret_environment": {"HF_TOKEN": "hub/token"},
    "environment": {"NCCL_DEBUG": "WARN", "A": "it's $(PATH) $$ ${x}"},
    "parallelism.tensor": 4,
}
ENGINES = {"toolchain": "trtllm-build", "trtllm_version": "1.2.1"}
SUBJECTS = {
    "one-gpu": lambda: in_pods({"parallelism.tensor": 1}),
    "node": lambda: in_pods(),
    "everything": lambda: in_pods(EVERYTHING),
    "everything-keda": lambda: in_pods(EVERYTHING | {"deploy.prometheus": "http://prometheus.monitoring:9090"}),
    "image-volume": lambda: in_pods({"deploy.volume_image": "registry.example.com/llama:1"}),
    "own-claim": lambda: in_pods({"deploy.volume_claim": "weights"}),
    "rack": lambda: in_pods({"parallelism.tensor": 8, "parallelism.replicas": 9}, RACK),
    "rack-everything": lambda: in_pods(EVERYTHING | {"parallelism.tensor": 8}, RACK),
    "cluster": lambda: in_pods({"parallelism.tensor": 4, "parallelism.pipeline": 4}, CLUSTER),
    "engines": lambda: in_pods(ENGINES, repository=OF_ENGINES),
    "rehearsal": lambda: in_pods({"parallelism.tensor": 1, "runtime": "simulated", "deploy.image": "trtkit:1"}, CPU),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_cluster_takes_every_object(name: str) -> None:
    """Core objects pass Kubernetes' strict schemas, custom ones those of their types, and all the rules of names."""
    found = objects(kubernetes_files(SUBJECTS[name]()))
    assert len(found) >= 5
    for one in found:
        check(one)
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", SUBJECTS)
def test_everything_hangs_together(name: str) -> None:
    """Services, budgets and monitors select pods that there are; volumes and claims name objects of the same files."""
    found = objects(kubernetes_files(SUBJECTS[name]()))
    by_kind = {one["kind"]: one for one in found}
    pods = [one for kind in ("Deployment", "LeaderWorkerSet") if kind in by_kind for one in [by_kind[kind]]]
    (server,) = pods
    spec = server["spec"]
    template = spec["template"] if "template" in spec else spec["leaderWorkerTemplate"]["leaderTemplate"]
    labels = template["metadata"]["labels"]
    for selector in (
        by_kind["Service"]["spec"]["selector"],
        by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        by_kind["PodMonitor"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    files = volumes["files"]["configMap"]
    assert by_kind["ConfigMap"]["metadata"]["name"] == files["name"]
    assert set(by_kind["ConfigMap"]["data"]) == {item["key"] for item in files["items"]}
    if "PersistentVolumeClaim" in by_kind:
        claim = by_kind["PersistentVolumeClaim"]["metadata"]["name"]
        assert claim == volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert len({one["metadata"].get("namespace") for one in found}) == 1


def server_of(made: Subject) -> dict[str, Any]:
    """Return the serving pod of a subject."""
    files = kubernetes_files(made)
    kind = "LeaderWorkerSet" if made.nodes > 1 else "Deployment"
    spec = of_kind(files, kind)["spec"]
    template = spec["template"] if "template" in spec else spec["leaderWorkerTemplate"]["leaderTemplate"]
    return dict(template["spec"])


@pytest.mark.parametrize("seconds", [5, 600, 7200])
def test_the_probes_survive_a_long_load(seconds: int) -> None:
    """The start has as long as the profile lets it, and only then the other probes begin."""
    (container,) = server_of(in_pods({"serve.start_grace": seconds}))["containers"]
    start = container["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= max(seconds, 282)
    assert "/v2/models/tensorrt_llm/ready" == start["httpGet"]["path"] == container["readinessProbe"]["httpGet"]["path"]


def test_readiness_is_no_liveness() -> None:
    """A server whose model is being loaded again is not killed: liveness asks whether it answers at all."""
    (container,) = server_of(in_pods())["containers"]
    assert "/v2/health/live" == container["livenessProbe"]["httpGet"]["path"]


@pytest.mark.parametrize("drain", ["1s", "60s", "10 min"])
def test_the_grace_is_longer_than_the_drain(drain: str) -> None:
    """A pod is killed after its server has drained and stopped, and the server is told after the balancers were."""
    made = in_pods({"deploy.drain": drain})
    pod = server_of(made)
    (container,) = pod["containers"]
    script = of_kind(kubernetes_files(made), "ConfigMap")["data"]["serve.sh"]
    assert f"--exit-timeout-secs={made.drain_seconds}" in script
    assert ["sleep", str(PRE_STOP_SECONDS)] == container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > made.drain_seconds + PRE_STOP_SECONDS


@pytest.mark.parametrize(
    ("changes", "machine", "size", "gpus", "command"),
    [
        ({"parallelism.tensor": 8}, RACK, 2, "4", '--host "${POD_NAME}":4,"${POD_NAME}"-1:4 '),
        ({"parallelism.tensor": 4, "parallelism.pipeline": 4}, CLUSTER, 4, "4", "-n 16 trtllm-llmapi-launch"),
    ],
)
def test_a_replica_over_nodes_is_a_group(
    changes: dict[str, Any], machine: Hardware, size: int, gpus: str, command: str
) -> None:
    """A group has a pod a node, each with its GPUs, and the leader starts one rank a GPU over all of them."""
    files = kubernetes_files(in_pods(changes, machine))
    group = of_kind(files, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert size == group["size"]
    for role in ("leaderTemplate", "workerTemplate"):
        assert {"nvidia.com/gpu": gpus} == group[role]["spec"]["containers"][0]["resources"]["limits"]
    script = of_kind(files, "ConfigMap")["data"]["serve.sh"]
    assert command in " ".join(script.replace("\\\n", " ").split())


def test_a_rack_gets_a_compute_domain_and_a_cluster_none() -> None:
    """Pods of a replica over NVLink claim a channel of one domain and stay in it; those over a network do not."""
    files = kubernetes_files(in_pods({"parallelism.tensor": 8}, RACK))
    domain = of_kind(files, "ComputeDomain")
    group = of_kind(files, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    for role in ("leaderTemplate", "workerTemplate"):
        spec = group[role]["spec"]
        assert [{"name": "nvlink", "resourceClaimTemplateName": template}] == spec["resourceClaims"]
        (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert "nvidia.com/gpu.clique" == term["topologyKey"]
    other = objects(kubernetes_files(in_pods({"parallelism.tensor": 8}, CLUSTER)))
    assert "ComputeDomain" not in {one["kind"] for one in other}


def test_only_a_leader_may_enter_pods() -> None:
    """The rights end at the pods of the namespace, and workers hold no token."""
    files = kubernetes_files(in_pods({"parallelism.tensor": 8}, RACK))
    group = of_kind(files, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert group["leaderTemplate"]["spec"]["automountServiceAccountToken"]
    assert not group["workerTemplate"]["spec"]["automountServiceAccountToken"]
    rules = of_kind(files, "Role")["rules"]
    assert {"pods", "pods/exec"} == {name for rule in rules for name in rule["resources"]}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("h200x8-700w", "NVIDIA-H200"),
        ("gb200-nvl72", "NVIDIA-GB200"),
        ("l40s-cluster", "NVIDIA-L40S"),
        ("h100x8", "NVIDIA-H100-80GB-HBM3"),
    ],
)
def test_pods_go_to_nodes_with_the_plans_gpu(name: str, label: str) -> None:
    """Each machine of the catalogue has the label its nodes carry."""
    machine = load_hardware(name)
    assert label == server_of(in_pods({"parallelism.tensor": 4}, machine))["nodeSelector"][PRODUCT]


def test_every_card_of_the_catalogue_has_a_label() -> None:
    """A machine that is added gets a label, or says in a profile's own selector where it runs."""
    from trtllm_kit.spec.load import hardware_names
    from trtllm_kit.upstream.deployment import gpu_label

    machines = [load_hardware(name) for name in hardware_names()]
    assert [] == [one.name for one in machines if not one.is_rehearsal and gpu_label(one.gpu.name) is None]


def test_a_label_of_the_profile_replaces_ours() -> None:
    """Slices of GPUs are labelled otherwise, and the profile knows how."""
    made = in_pods({"deploy.node_selector": {PRODUCT: "NVIDIA-H200-MIG-3g.71gb"}}, load_hardware("h200x8-700w"))
    assert {PRODUCT: "NVIDIA-H200-MIG-3g.71gb"} == server_of(made)["nodeSelector"]


def test_a_rehearsal_asks_for_no_gpu() -> None:
    """Pods of the simulated runtime run anywhere."""
    pod = server_of(SUBJECTS["rehearsal"]())
    assert ({}, False, False) == (pod["containers"][0]["resources"], "tolerations" in pod, "nodeSelector" in pod)


def test_secrets_are_named_and_not_written() -> None:
    """A secret variable is a reference to a Secret's key, and no file holds anything else of it."""
    files = kubernetes_files(in_pods(EVERYTHING))
    (container,) = of_kind(files, "Deployment")["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert {"secretKeyRef": {"name": "hub", "key": "token"}} == variables["HF_TOKEN"]["valueFrom"]
    assert "Secret" not in {one["kind"] for one in objects(files)}


def test_a_dollar_stays_a_dollar() -> None:
    """The kubelet replaces ``$(NAME)`` in values and ``$$`` escapes it, so a text of the profile arrives as it is."""
    (container,) = server_of(in_pods(EVERYTHING))["containers"]
    value = next(variable["value"] for variable in container["env"] if variable["name"] == "A")
    assert "it's $(PATH) $$ ${x}" == value.replace("$$", "$")
    assert "$(PATH)" not in value.replace("$$", "")


@pytest.mark.parametrize(("prometheus", "kind"), [(None, "HorizontalPodAutoscaler"), ("http://p:9090", "ScaledObject")])
@pytest.mark.parametrize(("machine", "scaled"), [(NODE, "Deployment"), (RACK, "LeaderWorkerSet")])
def test_scaling_follows_the_engine(prometheus: str | None, kind: str, machine: Hardware, scaled: str) -> None:
    """Replicas grow with what the engine says of its load, which the rules record, and not with Triton's queue."""
    tensor = 4 if machine is NODE else 8
    made = in_pods({"parallelism.tensor": tensor, "deploy.max_replicas": 2, "deploy.prometheus": prometheus}, machine)
    files = kubernetes_files(made)
    assert scaled == of_kind(files, kind)["spec"]["scaleTargetRef"]["kind"]
    assert "trtkit_engine_load" in files["scaling.yaml"]
    assert "nv_inference_queue_duration_us" not in files["scaling.yaml"]
    (group,) = of_kind(files, "PrometheusRule")["spec"]["groups"]
    assert "trtkit_engine_load" in [rule.get("record") for rule in group["rules"]]


@pytest.mark.parametrize(
    ("changes", "machine", "message"),
    [
        ({"serve.checkpoint_path": "/data/llama"}, NODE, "serve.checkpoint_path: found '/data/llama'"),
        ({"serve.checkpoint_path": "/models/../etc"}, NODE, "serve.checkpoint_path"),
        ({"serve.checkpoint_path": None}, NODE, "serve.checkpoint_path"),
        ({"runtime": "reference"}, NODE, "imports trtkit"),
        ({"deploy.volume_image": "a/b:1", "deploy.volume_claim": "c"}, NODE, "one of them"),
        ({"deploy.max_replicas": 2}, NODE, "2 replicas of 8 GPUs are 16, and test has 8"),
        (
            {"parallelism.tensor": 4, "parallelism.replicas": 2, "deploy.max_replicas": 1},
            NODE,
            "parallelism.replicas is 2",
        ),
        ({"deploy.prometheus": "http://p"}, NODE, "no meaning without deploy.max_replicas"),
    ],
)
def test_what_cannot_be_deployed_is_refused_by_key(changes: dict[str, Any], machine: Hardware, message: str) -> None:
    """Each problem names its key and the values, before any file is made."""
    with pytest.raises(ProfileError) as caught:
        kubernetes_files(in_pods(changes, machine))
    assert any(message in problem for problem in caught.value.problems)


def test_all_problems_come_at_once() -> None:
    """An operator corrects a profile once."""
    wrong = {"serve.checkpoint_path": "/x", "deploy.prometheus": "http://p", "environment.NCCL_DEBUG": "WARN",
             "deploy.secret_environment.NCCL_DEBUG": "a/b"}  # fmt: skip
    with pytest.raises(ProfileError) as caught:
        kubernetes_files(in_pods(wrong))
    assert 3 == len(caught.value.problems)


def test_a_repository_larger_than_a_config_map_is_refused() -> None:
    """A ConfigMap holds a mebibyte, and a manifest that no API server takes is not written."""
    with pytest.raises(ProfileError) as caught:
        kubernetes_files(in_pods(repository={"a/b.py": "x" * (1 << 20), "c/d": "y"}))
    assert any("a ConfigMap holds 1.00 MiB" in problem for problem in caught.value.problems)


def test_engines_are_built_before_servers_start() -> None:
    """The job runs the release's builder in the volume, and the script waits for it."""
    made = SUBJECTS["engines"]()
    files = kubernetes_files(made)
    job = of_kind(files, "Job")
    script = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert "trtllm-build --checkpoint_dir checkpoint --output_dir ." in " ".join(script.replace("\\\n", " ").split())
    apply = files["apply.sh"]
    assert apply.index("build.yaml") < apply.index(f"job/{job['metadata']['name']}") < apply.index("servers.yaml")
    assert ("sh", "D/apply.sh") == kubernetes_command(made, "D")


def test_another_repository_is_another_config_map() -> None:
    """A rollback finds the files it was made with."""
    first, second = (in_pods(repository={"a/b": text}) for text in ("1", "2"))
    names = [of_kind(kubernetes_files(made), "ConfigMap")["metadata"]["name"] for made in (first, second)]
    assert names[0] != names[1]


def test_the_plan_of_pods_is_legal() -> None:
    """The checkpoint path that pods need is one that a profile may have."""
    loaded = profile({"serve.checkpoint_path": "/models/checkpoint", "parallelism.tensor": 8})
    assert make_plan(in_pods().plan.model, loaded, NODE).serve.checkpoint_path == "/models/checkpoint"
