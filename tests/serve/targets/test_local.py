"""Target ``local``: the server's flags, the container's options and trtllm-serve, each as its release wants them."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from tests.serve.targets.support import CLUSTER, CPU, NODE, OF_ENGINES, subject
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.errors import ProfileError
from trtllm_kit.serve.targets.local import local_command, local_files
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.upstream import known_releases, release

SERVED = [name for name in known_releases() if "llm-api" in release(name).toolchains and release(name).image]


def words(text: str, program: str) -> list[str]:
    """Return the words of the command that runs a program."""
    lines = text.replace("\\\n", " ").splitlines()
    (line,) = (line for line in lines if line.split("#")[0].split()[:1] in (["exec"], ["setsid"]) and program in line)
    return shlex.split(line.rstrip(" &"))


@pytest.mark.parametrize("version", SERVED)
def test_the_server_has_the_flags_of_its_release(version: str) -> None:
    """The first token's histogram, the drain and a config taken as it stands: none is left to a default."""
    found = words(local_files(subject({"trtllm_version": version}))["tritonserver.sh"], "tritonserver")
    for flag in (
        "--metrics-config=histogram_latencies=true",
        "--exit-timeout-secs=60",
        "--disable-auto-complete-config",
    ):
        assert flag in found
    assert "trtllm-llmapi-launch" in found
    assert "--allow-client-shm=true" not in found


def test_containers_without_the_histogram_are_not_asked_for_it() -> None:
    """The family came with the container of 0.15."""
    early = subject({"trtllm_version": "0.14.0", "toolchain": "trtllm-build"}, repository=OF_ENGINES)
    later = subject({"trtllm_version": "0.15.0", "toolchain": "trtllm-build"}, repository=OF_ENGINES)
    found = ["histogram_latencies" in local_files(made)["tritonserver.sh"] for made in (early, later)]
    assert [False, True] == found


@pytest.mark.parametrize("version", SERVED)
def test_the_container_is_the_releases_with_room_to_share_memory(version: str) -> None:
    """Image tag, shared memory, limits and the time to drain are the deployment's own."""
    made = subject({"trtllm_version": version, "deploy.drain": "90s"})
    found = words(local_files(made)["container.sh"], "docker")
    assert release(version).image in found
    options = {found[place]: found[place + 1] for place in range(len(found) - 1) if found[place].startswith("--")}
    assert str(17 << 30) == options["--shm-size"]
    assert ["memlock=-1", "stack=67108864"] == [found[n + 1] for n, word in enumerate(found) if word == "--ulimit"]
    assert int(options["--stop-timeout"]) > 90
    assert '"device=0,1,2,3,4,5,6,7"' == options["--gpus"]


@pytest.mark.parametrize(
    ("version", "option", "limits"),
    [
        ("1.0.0", "--extra_llm_api_options", True),
        ("1.1.0", "--extra_llm_api_options", None),
        ("1.2.1", "--config", False),
    ],
)
def test_trtllm_serve_gets_its_settings_as_its_release_takes_them(
    version: str, option: str, limits: bool | None
) -> None:
    """The file is named by the release's option; limits that the file could not set are on the command line."""
    made = subject({"trtllm_version": version})
    files = local_files(made)
    found = words(files["trtllm-serve.sh"], "trtllm-serve")
    settings = yaml.safe_load(files["llm_args.yaml"])
    assert option in found
    assert ("build_config" in llm_api_document(made.plan)) == ("--max_batch_size" in found)
    assert limits is None or limits == ("--max_batch_size" in found)
    assert not {"model", "build_config"} & settings.keys()
    given = {word.removeprefix("--") for word in found if word.startswith("--")}
    assert not given & settings.keys()


def test_replicas_on_one_machine_have_ports_gpus_and_names_of_their_own() -> None:
    """Eight copies of one rank: all.sh starts each with its number."""
    made = subject({"parallelism.tensor": 1, "parallelism.replicas": 8})
    files = local_files(made)
    assert 8 == files["all.sh"].count("/container.sh &")
    assert '--http-port="$((8000 + 10 * ${REPLICA:-0}))"' in files["tritonserver.sh"]
    assert "CUDA_VISIBLE_DEVICES=7" in files["tritonserver.sh"]
    assert 'shm-region-prefix-name=test_"${REPLICA}"_' in files["tritonserver.sh"].replace("\\\n", "")
    assert '--name test-"${REPLICA}"' in files["container.sh"]
    assert ("sh", "D/all.sh") == local_command(made, "D")


def test_engines_have_a_server_a_rank() -> None:
    """Rank 0 opens the ports; the others load the model, open none, and share no memory with it."""
    found = words(local_files(subject({"parallelism.tensor": 2}, repository=OF_ENGINES))["tritonserver.sh"], "mpirun")
    start = found.index("-n")
    first, second = " ".join(found[start:]).split(" : ")
    assert "--http-port=8000" in first
    assert "--allow-http=false --allow-grpc=false --allow-metrics=false" in second
    assert "--model-control-mode=explicit --load-model=tensorrt_llm" in second
    assert ("test_0_", "test_1_") == (first.split("prefix-name=")[1], second.split("prefix-name=")[1])


def test_a_runtime_that_no_container_has_gets_none() -> None:
    """The reference runtime imports trtkit: it is served from this machine, or from an image of one's own."""
    wanted = {"parallelism.tensor": 1, "runtime": "reference"}
    assert {"tritonserver.sh"} == local_files(subject(wanted, CPU)).keys()
    assert "container.sh" in local_files(subject(wanted | {"deploy.image": "registry.example.com/mine:1"}, CPU))
    assert "trtllm-serve.sh" not in local_files(subject(wanted, CPU))


def test_a_replica_over_nodes_is_not_local() -> None:
    """One machine cannot hold it, and the targets that can are named."""
    with pytest.raises(ProfileError) as caught:
        local_files(subject({"parallelism.tensor": 8}, CLUSTER))
    assert any("spans 2 nodes" in problem for problem in caught.value.problems)


@pytest.mark.parametrize(("host", "http", "grpc"), [("0.0.0.0", "0.0.0.0", "0.0.0.0"), ("::1", "ipv6:::1", "[::1]")])
def test_the_server_listens_where_the_profile_says(host: str, http: str, grpc: str) -> None:
    """The addresses are the profile's, as each endpoint spells them."""
    found = words(local_files(subject({"serve.host": host}))["tritonserver.sh"], "tritonserver")
    assert {f"--http-address={http}", f"--grpc-address={grpc}"} <= set(found)


def test_a_secret_comes_from_the_shell() -> None:
    """The container is told the name of the variable and never its value."""
    made: Subject = subject({"deploy.secret_environment": {"HF_TOKEN": "hub/token"}}, NODE)
    found = words(local_files(made)["container.sh"], "docker")
    assert "HF_TOKEN" == found[found.index("--env") + 1]


@pytest.mark.parametrize("place", ["/data/it's here", "/data/$(touch x)"])
def test_a_container_sees_the_checkpoint_where_the_profile_says(place: str) -> None:
    """A path in the place of the link is mounted as it is, and one that does not exist ends docker with an error."""
    found = words(local_files(subject({"serve.checkpoint_path": place}))["container.sh"], "docker")
    assert f"type=bind,source={place},target={place},readonly" in found


@pytest.mark.parametrize("place", ["/data/a,b", "/data/a:b", "data/a", '/data/"a"'])
def test_a_path_that_no_mount_can_name_is_refused(place: str) -> None:
    """Commas and colons part the paths of a mount, so a path with one would be another mount."""
    with pytest.raises(ProfileError) as caught:
        local_files(subject({"serve.checkpoint_path": place}))
    assert any("cannot be mounted" in problem for problem in caught.value.problems)


def test_a_release_in_no_container_is_served_without_one() -> None:
    """What is installed here needs no image."""
    assert {"tritonserver.sh", "trtllm-serve.sh", "llm_args.yaml"} == local_files(
        subject({"trtllm_version": "main"})
    ).keys()


def environment_of(changes: dict[str, Any]) -> str:
    """Return the script of a subject with variables."""
    return local_files(subject({"environment": changes}))["tritonserver.sh"]


def test_variables_are_set_before_the_server_starts() -> None:
    """What the profile sets is exported as it stands."""
    assert "A='it'\"'\"'s'\nexport A\n" in environment_of({"A": "it's"})
