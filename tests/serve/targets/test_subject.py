"""What is decided once for all targets: names, placement, ports, images, times; and what keeps a plan from it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.targets.support import CLUSTER, CPU, NODE, OF_ENGINES, RACK, REPOSITORY, subject
from tests.support.specs import profile
from trtllm_kit.errors import ProfileError
from trtllm_kit.serve.targets.server import rank_commands
from trtllm_kit.serve.targets.subject import GRACE_MARGIN_SECONDS, PRE_STOP_SECONDS, Subject
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.units import GIB


def problems(made: Subject, *, image: bool = True) -> tuple[str, ...]:
    """Return what stands in the way of a subject."""
    try:
        made.check("somewhere", image=image)
    except ProfileError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("h200x8-offline", "h200x8-offline"), ("gh200-llama3.1_70b", "gh200-llama3-1-70b"), ("a.-b", "a--b")],
)
def test_the_name_is_the_profiles(name: str, expected: str) -> None:
    """Dots and underscores, which a service's name may not hold, are dashes."""
    assert expected == subject({"name": name}).name


@pytest.mark.parametrize("name", ["7b-chat", "x" * 41, "1"])
def test_a_profile_whose_name_no_service_can_have_needs_another(name: str) -> None:
    """A name that begins with a digit or leaves no room for suffixes is a problem, and deploy.name solves it."""
    assert 1 == sum("deploy.name: missing" in problem for problem in problems(subject({"name": name})))
    assert () == problems(subject({"name": name, "deploy.name": "chat"}))


@pytest.mark.parametrize(
    ("changes", "machine", "nodes", "gpus"),
    [
        ({"parallelism.tensor": 1}, NODE, 1, 1),
        ({"parallelism.tensor": 8}, NODE, 1, 8),
        ({"parallelism.tensor": 4, "parallelism.pipeline": 2}, CLUSTER, 2, 4),
        ({"parallelism.tensor": 8}, RACK, 2, 4),
        ({"parallelism.tensor": 8, "parallelism.pipeline": 9}, RACK, 18, 4),
    ],
)
def test_ranks_fill_nodes(changes: dict[str, Any], machine: Hardware, nodes: int, gpus: int) -> None:
    """A replica takes as many nodes as its ranks need, and as many GPUs on each."""
    made = subject(changes, machine)
    assert (nodes, gpus) == (made.nodes, made.gpus_per_node)


def test_ranks_that_leave_a_node_half_filled_are_a_problem() -> None:
    """Five ranks do not divide over nodes of four GPUs, and six do, three on each."""
    odd = subject({"parallelism.tensor": 1, "parallelism.pipeline": 5}, CLUSTER)
    assert any("5 ranks do not divide over 2 nodes of 4 GPUs" in problem for problem in problems(odd))
    assert () == problems(subject({"parallelism.tensor": 2, "parallelism.pipeline": 3}, CLUSTER))


@pytest.mark.parametrize(
    ("machine", "expected"), [(RACK, True), (CLUSTER, False), (NODE, False)], ids=["rack", "cluster", "node"]
)
def test_only_ranks_on_several_nodes_of_a_domain_need_imex(machine: Hardware, expected: bool) -> None:
    """NVLink leaves a node in a rack, not in a cluster, and a replica within a node does not care."""
    assert expected is subject({"parallelism.tensor": 8}, machine).over_nvlink


def test_replicas_of_a_node_have_ports_of_their_own() -> None:
    """Eight replicas share a host; the last one's ports are seventy higher, and must exist."""
    wanted = {"parallelism.tensor": 1, "parallelism.replicas": 8}
    assert subject(wanted).shares_host
    assert () == problems(subject(wanted))
    assert any("port 65540" in one for one in problems(subject(wanted | {"serve.metrics_port": 65470})))
    assert any("must all differ" in one for one in problems(subject(wanted | {"serve.grpc_port": 8010})))
    assert () == problems(subject({"serve.grpc_port": 8010}))


def test_ports_that_are_the_same_are_a_problem() -> None:
    """One port can be bound once."""
    assert any("must all differ" in one for one in problems(subject({"serve.grpc_port": 8000})))


def test_the_container_is_the_one_of_the_release() -> None:
    """Without a wish of the profile it is the best container that holds the release."""
    assert "nvcr.io/nvidia/tritonserver:26.06-trtllm-python-py3" == subject().image
    assert "nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3" == subject({"trtllm_version": "1.0.0"}).image


def test_a_release_in_no_container_needs_one_named() -> None:
    """No Triton container holds main: the operator says what serves it, and a target without Triton needs none."""
    made = subject({"trtllm_version": "main"})
    assert any("deploy.image: missing" in problem for problem in problems(made))
    assert () == problems(made, image=False)
    assert () == problems(subject({"trtllm_version": "main", "deploy.image": "registry.example.com/triton:main"}))


def test_a_container_of_another_release_is_a_problem() -> None:
    """A Triton container that is known to hold another release is refused; one's own image is not judged."""
    other = subject({"deploy.image": "nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3"})
    assert any("holds TensorRT-LLM 1.1.0, and the plan is made for 1.2.1" in problem for problem in problems(other))
    for image in (
        "nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3",
        "mirror.example.com/mine/tritonserver-fork:25.12",
    ):
        assert () == problems(subject({"deploy.image": image}))


def test_a_variable_is_named_once() -> None:
    """What comes from a Secret does not stand under environment too; alone it is no problem."""
    secret = {"deploy.secret_environment.NCCL_DEBUG": "access/key"}

    assert any(
        "environment.NCCL_DEBUG: also in deploy.secret_environment" in one
        for one in problems(subject(secret | {"environment.NCCL_DEBUG": "WARN"}))
    )
    assert () == problems(subject(secret))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("PAD_TOKEN_ID", "2"),
        ("MOST_TOKEN", "2048"),
        ("TLLM_LOG_LEVEL", "INFO"),
        ("MIRROR", "https://a.example.com:80/x"),
    ],
)
def test_a_variable_that_is_no_secret_is_none(name: str, value: str) -> None:
    """Names and values that hold no secret are written."""
    assert () == problems(subject({f"environment.{name}": value}))


def test_the_kill_comes_after_everything_a_stopping_server_does() -> None:
    """The grace is longer than the wait for balancers and the drain together, whatever the drain is."""
    for seconds in (1, 60, 3600):
        made = subject({"deploy.drain": seconds})
        assert PRE_STOP_SECONDS + seconds + GRACE_MARGIN_SECONDS == made.grace_seconds


def test_a_start_may_take_what_loading_takes() -> None:
    """The profile's grace is the least; weights that take longer to read from slow storage stretch it."""
    assert 600 == subject({"parallelism.tensor": 1, "quantization.weights": "fp8"}).start_seconds
    long = subject({"serve.start_grace": 1, "quantization.weights": "bf16"})
    assert 141e9 / 250e6 == pytest.approx(long.start_seconds, rel=0.02)


def test_each_rank_has_shared_memory() -> None:
    """Each rank has room of its own beside the stubs'."""
    assert 17 * GIB == subject().shm_bytes


def test_a_rehearsal_needs_no_gpu() -> None:
    """A CPU, or a runtime without a GPU, asks for none."""
    assert subject().on_gpus
    assert not subject({"parallelism.tensor": 1, "runtime": "simulated"}, CPU).on_gpus
    assert not subject({"runtime": "simulated"}).on_gpus
    assert subject({"runtime": "transformers", "quantization.weights": "bf16", "quantization.kv_cache": "bf16"}).on_gpus


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("namespace", "None!"), ("namespace", "a.b"), ("name", "A"), ("name", "a_b"), ("name", "-a"), ("name", "a\n"),
        ("image", "x y"), ("image", "$(id)"), ("image", "a/../b c"), ("partition", "a;b"), ("account", "--x"),
        ("prometheus", "http://u:p@h"), ("prometheus", "ftp://h"), ("prometheus", "http://h/$(x)"), ("gateway", "a b"),
        ("pull_secret", "a'b"), ("volume_claim", ".."), ("hosts", ["a b"]), ("hosts", ["a slots=9"]),
        ("node_selector", {"a b": "c"}), ("node_selector", {"a": "c d"}), ("secret_environment", {"A": "x"}),
        ("secret_environment", {"A": "x/y z"}), ("secret_environment", {"A B": "x/y"}), ("drain", 0),
        ("max_replicas", 0),
    ],
)  # fmt: skip
def test_names_of_other_forms_are_refused(key: str, value: Any) -> None:
    """What ends in a manifest or a script as a name has the form its reader takes, or the profile is refused."""
    with pytest.raises(ValueError, match=f"deploy.{key}"):
        profile({f"deploy.{key}": value})


ENGINES = {"toolchain": "trtllm-build", "parallelism.tensor": 2, "parallelism.replicas": 4}
ONE, WAITING = {"TRTLLM_ORCHESTRATOR": "1"}, {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"parallelism.tensor": 2, "parallelism.replicas": 4}, (4, 2, 2)),
        ({"parallelism.tensor": 2, "parallelism.replicas": 4, "serve.instances": 2}, (2, 4, 1)),
        ({"parallelism.tensor": 2, "parallelism.replicas": 4, "runtime": "simulated"}, (4, 2, 1)),
        (ENGINES, (4, 2, 2)),
        (ENGINES | {"environment": ONE}, (1, 8, 1)),
        (ENGINES | {"parallelism.replicas": 1, "environment": WAITING}, (1, 2, 3)),
    ],
)
def test_servers_their_gpus_and_what_mpi_starts_of_each(changes: dict[str, Any], shape: tuple[int, int, int]) -> None:
    """Instances share a server, which starts their ranks; an orchestrator of ranks that wait is one rank more."""
    made = subject(changes, repository=OF_ENGINES if "toolchain" in changes else REPOSITORY)

    assert shape == (made.replicas, made.world, made.processes)
    assert () == problems(made)


@pytest.mark.parametrize(
    ("changes", "words", "commands"),
    [
        ({"parallelism.tensor": 1, "parallelism.replicas": 2, "serve.instances": 2}, ["tritonserver"], 1),
        (ENGINES | {"environment": ONE}, ["tritonserver"], 1),
        (ENGINES | {"parallelism.replicas": 1, "environment": WAITING}, ["tritonserver"] * 3, 3),
        ({"parallelism.tensor": 2}, ["trtllm-llmapi-launch"], 1),
    ],
)
def test_what_the_ranks_of_a_server_run(changes: dict[str, Any], words: list[str], commands: int) -> None:
    """One server alone needs no launcher of ranks."""
    made = subject(changes, repository=OF_ENGINES if "toolchain" in changes else REPOSITORY)
    ranks = rank_commands(made, "repository", "127.0.0.1")

    assert (words, commands) == ([group.words[0] for group in ranks], len(ranks))


def test_a_server_that_starts_its_ranks_has_them_on_its_node() -> None:
    """Eight instances of two GPUs do not stand on a node of eight."""
    found = problems(subject(ENGINES | {"parallelism.replicas": 8, "environment": ONE}, repository=OF_ENGINES))

    assert any("one server starts 16 ranks itself" in one for one in found)
