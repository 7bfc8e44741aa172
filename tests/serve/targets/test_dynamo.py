"""Target ``dynamo``: graphs that the operator takes, of the same plan."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.serve.targets.manifests import check
from tests.serve.targets.support import CPU, NODE, RACK, in_pods, objects, of_kind
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.errors import ProfileError
from trtllm_kit.serve.targets.dynamo import AGGREGATED, DISAGGREGATED, MOST_NAME, dynamo_command, dynamo_files
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.upstream.deployment import dynamo_releases
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys

DYNAMO = {"trtllm_version": "1.3.0rc19"}
SPLIT = DYNAMO | {"parallelism.tensor": 8, "parallelism.replicas": 9, "deploy.prefill_replicas": 1}
SUBJECTS = {
    "node": lambda: in_pods(DYNAMO),
    "image": lambda: in_pods({"deploy.dynamo_image": "registry.example.com/dynamo:1"}),
    "rack": lambda: in_pods(SPLIT, RACK),
    "secrets": lambda: in_pods(
        DYNAMO | {"deploy.secret_environment": {"HF_TOKEN": "hub/token"}, "deploy.namespace": "a"}
    ),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_cluster_takes_every_object(name: str) -> None:
    """Each file passes the strict schema of v1beta1, its pods Kubernetes', and the names their rules."""
    for text in dynamo_files(SUBJECTS[name]()).values():
        for one in yaml.safe_load_all(text):
            check(one)


@pytest.mark.parametrize("version", dynamo_releases())
def test_the_container_holds_the_release(version: str) -> None:
    """A plan for a release gets Dynamo's runtime of that release, in every component."""
    graph = of_kind(
        {AGGREGATED: dynamo_files(in_pods({"trtllm_version": version}))[AGGREGATED]}, "DynamoGraphDeployment"
    )
    images = {one["podTemplate"]["spec"]["containers"][0]["image"] for one in graph["spec"]["components"]}
    assert 1 == len(images)
    assert next(iter(images)).startswith("nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.")


def test_ranks_fill_nodes() -> None:
    """The GPUs of all nodes of a worker are as many as the plan has ranks."""
    made = SUBJECTS["rack"]()
    graph = of_kind({"a.yaml": dynamo_files(made)[DISAGGREGATED]}, "DynamoGraphDeployment")
    for component in graph["spec"]["components"][1:]:
        gpus = int(component["podTemplate"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        assert made.world == gpus * component["multinode"]["nodeCount"]


def test_disaggregated_serving_takes_no_more_gpus() -> None:
    """Workers of both kinds together are the replicas of the profile."""
    made = SUBJECTS["rack"]()
    files = dynamo_files(made)
    graph = of_kind({"a.yaml": files[DISAGGREGATED]}, "DynamoGraphDeployment")
    copies = {one["type"]: one["replicas"] for one in graph["spec"]["components"]}
    assert {"frontend": 1, "prefill": 1, "decode": 8} == copies
    assert ("kubectl", "apply", "--server-side", "--filename", f"D/{DISAGGREGATED}") == dynamo_command(made, "D")


def test_the_settings_are_the_plans_and_known_to_the_release() -> None:
    """A worker gets the arguments of the plan; both kinds of disaggregated ones can hand over the longest prompt."""
    made = SUBJECTS["rack"]()
    files = dynamo_files(made)
    plain = {key: value for key, value in llm_api_document(made.plan).items() if key != "model"}
    (settings,) = (one["data"] for one in objects({"a.yaml": files[AGGREGATED]}) if one["kind"] == "ConfigMap")
    assert plain == yaml.safe_load(settings["worker.yaml"])
    (apart,) = (one["data"] for one in objects({"a.yaml": files[DISAGGREGATED]}) if one["kind"] == "ConfigMap")
    for role in ("prefill", "decode"):
        document = yaml.safe_load(apart[f"{role}.yaml"])
        assert made.plan.limits.max_seq_len.value == document["cache_transceiver_config"]["max_tokens_in_buffer"]
        assert () == unknown_llm_api_keys(made.version, document)
        assert (
            plain.items() <= (document | {"disable_overlap_scheduler": plain.get("disable_overlap_scheduler")}).items()
            or plain
        )
    assert yaml.safe_load(apart["prefill.yaml"])["disable_overlap_scheduler"]


def test_without_a_wish_there_is_no_disaggregated_graph() -> None:
    """Nothing is split unasked, and the command applies what there is."""
    made = SUBJECTS["node"]()
    assert [AGGREGATED] == list(dynamo_files(made))
    assert dynamo_command(made, "D")[-1] == f"D/{AGGREGATED}"


@pytest.mark.parametrize(
    ("changes", "machine", "message"),
    [
        (
            {},
            NODE,
            "no runtime of Dynamo is known to hold TensorRT-LLM 1.2.1 (those that are hold 1.3.0rc19, 1.3.0rc25)",
        ),
        (DYNAMO | {"parallelism.tensor": 1, "runtime": "simulated"}, CPU, "runtime simulated"),
        ({"toolchain": "trtllm-build", "deploy.dynamo_image": "a/b:1"}, NODE, "toolchain: trtllm-build"),
        (DYNAMO | {"deploy.prefill_replicas": 1}, NODE, "1 of 1 replicas"),
        (DYNAMO | {"deploy.name": "a" * 39}, NODE, f"allowed are {MOST_NAME} together"),
        (DYNAMO | {"serve.checkpoint_path": "/x"}, NODE, "pods see the volume at /models"),
    ],
)
def test_what_cannot_be_deployed_is_refused_by_key(changes: dict[str, Any], machine: Hardware, message: str) -> None:
    """Versions that drift apart, names that Grove refuses and GPUs that there are not never get into a file."""
    with pytest.raises(ProfileError) as caught:
        dynamo_files(in_pods(changes, machine))
    assert any(message in problem for problem in caught.value.problems)


def test_a_release_without_a_triton_container_is_no_problem() -> None:
    """Dynamo brings its own container."""
    assert dynamo_files(in_pods({"trtllm_version": "1.3.0rc25"}))
