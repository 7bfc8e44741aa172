"""Runners: how one command is started on this machine, in a container, or as the operator's words say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtllm_kit.build.runner import RUNNERS, Command, wrapped
from trtllm_kit.errors import NoToolchain
from trtllm_kit.spec.profile_build import Runner

COMMAND = Command(("trtllm-build", "--workers", "2"), {"NCCL_DEBUG": "INFO"}, image="registry/image:1")


def test_every_runner_of_a_profile_has_a_row() -> None:
    """What a profile may name can be run."""
    assert set(Runner.__args__) == set(RUNNERS)  # type: ignore[attr-defined]


def test_local_adds_nothing() -> None:
    """The variables are those of the process."""
    started = wrapped("local", COMMAND)
    assert (COMMAND.words, COMMAND.environment, ()) == (started.words, started.environment, started.afterwards)


def test_docker_mounts_each_folder_where_it_is_and_removes_the_container() -> None:
    """Inputs cannot be written, links between the folders hold, and killing the client is not all."""
    started = wrapped("docker", replace(COMMAND, draft=True))
    line = " ".join(started.words)
    assert "--volume {engine}:{engine} --volume {checkpoint}:{checkpoint}:ro --volume {draft}:{draft}:ro" in line
    assert "--env NCCL_DEBUG=INFO" in line
    assert line.endswith("registry/image:1 trtllm-build --workers 2")
    assert ("docker", "rm", "--force", "trtkit-build-{number}") == started.afterwards
    assert "--name trtkit-build-{number}" in line


@pytest.mark.parametrize(("runner", "option"), [("docker", "--volume"), ("apptainer", "--bind")])
def test_a_container_sees_adapters_where_they_are_here(runner: str, option: str) -> None:
    """Behind the other folders, and not to be written."""
    words = wrapped(runner, replace(COMMAND, read=("/data/one", "/data/two"))).words
    line = " ".join(words)
    assert f"{option} {{checkpoint}}:{{checkpoint}}:ro {option} /data/one:/data/one:ro {option} /data/two" in line


@pytest.mark.parametrize(
    ("image", "source"),
    [("a/b:1", "docker://a/b:1"), ("/images/b.sif", "/images/b.sif"), ("oras://a/b:1", "oras://a/b:1")],
)
def test_apptainer_takes_files_and_registries(image: str, source: str) -> None:
    """A name without a scheme is one of a Docker registry."""
    assert source in wrapped("apptainer", replace(COMMAND, image=image)).words


def test_a_template_is_filled_with_the_command_word_by_word() -> None:
    """The image is part of a word, the command is words of its own."""
    template = ("srun", "--container-image={image}", "{command}", "--end")
    started = wrapped("template", replace(COMMAND, template=template))
    assert ("srun", "--container-image=registry/image:1", *COMMAND.words, "--end") == started.words


@pytest.mark.parametrize("runner", ["docker", "apptainer"])
def test_a_container_needs_an_image(runner: str) -> None:
    """Without one the build is refused before anything starts."""
    with pytest.raises(NoToolchain, match="no container"):
        wrapped(runner, replace(COMMAND, image=None))
