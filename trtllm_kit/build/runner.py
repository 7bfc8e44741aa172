"""Where a command runs: on this machine, in a container, or as a command line of the operator's says (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trtllm_kit.build.step import CHECKPOINT_PLACE, DRAFT_PLACE, ENGINE, OWN_NUMBER
from trtllm_kit.errors import NoToolchain
from trtllm_kit.spec.profile_build import COMMAND

_NAME = f"trtkit-build-{OWN_NUMBER}"
_SIF = ".sif"


@dataclass(frozen=True)
class Command:
    """A command and what it needs around it."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    image: str | None = None
    template: tuple[str, ...] = ()
    draft: bool = False
    """Whether it reads a draft model too."""
    read: tuple[str, ...] = ()
    """Further folders of this machine that it reads: adapters."""

    @property
    def places(self) -> tuple[str, ...]:
        """Folders it reads or writes, the written one first."""
        return (ENGINE, CHECKPOINT_PLACE, *((DRAFT_PLACE,) if self.draft else ()), *self.read)


@dataclass(frozen=True)
class Wrapped:
    """A command as it is started, and what ends it where killing it does not."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables of the process that is started."""
    afterwards: tuple[str, ...] = ()


def wrapped(runner: str, command: Command) -> Wrapped:
    """Return a command as the runner starts it; raises ``NoToolchain`` for a container runner without an image."""
    return RUNNERS[runner](command)


def _local(command: Command) -> Wrapped:
    return Wrapped(command.words, command.environment)


def _docker(command: Command) -> Wrapped:
    """Mount every folder where it is here, so that the links between them hold; a container outlives its client."""
    mounts = [f"{place}:{place}" if place == ENGINE else f"{place}:{place}:ro" for place in command.places]
    variables = [f"{name}={value}" for name, value in command.environment.items()]
    words = ("docker", "run", "--rm", "--init", "--name", _NAME, "--gpus", "all", "--network", "none", "--ipc", "host",
             *_each("--volume", mounts), "--workdir", ENGINE, *_each("--env", variables),
             "--entrypoint", "", _image(command), *command.words)  # fmt: skip
    return Wrapped(words, {}, ("docker", "rm", "--force", _NAME))


def _apptainer(command: Command) -> Wrapped:
    image = _image(command)
    source = image if image.endswith(_SIF) or "://" in image else f"docker://{image}"
    mounts = [f"{place}:{place}" if place == ENGINE else f"{place}:{place}:ro" for place in command.places]
    variables = [f"{name}={value}" for name, value in command.environment.items()]
    words = ("apptainer", "exec", "--nv", "--cleanenv", *_each("--bind", mounts), "--pwd", ENGINE,
             *_each("--env", variables), source, *command.words)  # fmt: skip
    return Wrapped(words, {})


def _template(command: Command) -> Wrapped:
    words: list[str] = []
    for word in command.template:
        words += command.words if word == COMMAND else (word.replace("{image}", command.image or ""),)
    return Wrapped(tuple(words), command.environment)


def _image(command: Command) -> str:
    if command.image is None:
        raise NoToolchain(
            "no container to build in",
            why="the profile names none, and none is known to hold the release",
            hint="set build.image, or build.runner: local",
        )
    return command.image


def _each(option: str, values: list[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))


RUNNERS: dict[str, Callable[[Command], Wrapped]] = {
    "local": _local,
    "docker": _docker,
    "apptainer": _apptainer,
    "template": _template,
}
