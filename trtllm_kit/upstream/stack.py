"""What a release was built with and what a container brings: TensorRT, ModelOpt, CUDA, driver."""

from __future__ import annotations

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "stack"


class Built(Fact):
    """What one release was built with."""

    version: str
    tensorrt: str | None = None
    """Major and minor number; None where it was not read."""
    modelopt: str | None = None


class _Driver(Fact):
    version: str
    """Major version of CUDA."""
    driver: str


class Container(Fact):
    """What one Triton container brings."""

    tag: str
    trtllm: str
    """The TensorRT-LLM release in it."""
    tensorrt: str
    python: str
    triton: str | None = None
    """Triton's own version; None where it was not read."""
    cuda: str
    driver: str
    """The driver that comes with it."""


def built_with(version: str) -> Built | None:
    """Return what a release was built with; None when it was not read."""
    return next((row for row in rows(_TABLE, "releases", Built) if row.version == version), None)


def container(tag: str) -> Container | None:
    """Return what the container of a month (``25.12``) brings; None when it was not read."""
    return next((row for row in rows(_TABLE, "containers", Container) if row.tag == tag), None)


def containers_of(release: str) -> tuple[Container, ...]:
    """Return the containers that hold a release, oldest first; none where none was read."""
    return tuple(row for row in rows(_TABLE, "containers", Container) if row.trtllm == release)


def oldest_driver(cuda: str) -> str | None:
    """Return the oldest driver for a CUDA version (``13.1``) by compatibility within its major one; None if unread."""
    major = cuda.partition(".")[0]
    return next((row.driver for row in rows(_TABLE, "drivers", _Driver) if row.version == major), None)
