"""TensorRT-LLM releases: what serves them, which containers hold them, and how well the kit knows them."""

from __future__ import annotations

import re
from functools import cache

from trtllm_kit.errors import UsageError
from trtllm_kit.upstream.facts import MAIN, Fact, Frozen, rows, version_key

_SERIES = re.compile(r"(\d+)\.(\d+)(rc)?")


class _Row(Fact):
    version: str
    first: str | None = None
    date: str | None = None
    images: tuple[str, ...]


class Toolchain(Fact):
    """One way to make an engine."""

    name: str
    summary: str


class _LlmapiModel(Fact):
    note: str


class Release(Frozen):
    """One TensorRT-LLM release."""

    version: str
    date: str | None
    toolchains: tuple[str, ...]
    """Names of the ways to make an engine for it, in the order of the table."""
    images: tuple[str, ...]
    """Triton containers that hold it, newest first; empty when none does."""
    triton_llmapi_model: bool
    """Whether its Triton container can serve the llmapi model."""

    @property
    def image(self) -> str | None:
        """The newest Triton container that holds it."""
        return self.images[0] if self.images else None


@cache
def release(version: str) -> Release:
    """Return the release that ``1.2.1``, ``1.2`` (its newest), ``1.3.0rc14`` or ``main`` names.

    Raises ``UsageError`` with the known releases for any other text.
    """
    row = _find(version.strip())
    if row is None:
        raise UsageError(
            f"trtllm_version {version!r} is not a release trtkit knows",
            why="known are " + ", ".join(_span(row) for row in _releases()),
            hint="set trtllm_version to one of them, e.g. trtllm_version: 1.2.1",
        )
    name = row.version if _names_series(version) else version.strip()
    return Release(
        version=name,
        date=row.date if name == row.version else None,
        toolchains=tuple(tool.name for tool in toolchains() if tool.holds(name)),
        images=tuple(f"nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3" for tag in row.images),
        triton_llmapi_model=any(fact.holds(name) for fact in rows("releases", "triton_llmapi_model", _LlmapiModel)),
    )


def known_releases() -> tuple[str, ...]:
    """Return every release the table names, oldest first."""
    return tuple(row.version for row in _releases())


@cache
def toolchains() -> tuple[Toolchain, ...]:
    """Return every toolchain with its range of releases."""
    return rows("releases", "toolchains", Toolchain)


@cache
def _releases() -> tuple[_Row, ...]:
    return rows("releases", "releases", _Row)


def _find(text: str) -> _Row | None:
    series = _SERIES.fullmatch(text)
    if series is not None:
        return next((row for row in reversed(_releases()) if _is_of(row, int(series[1]), int(series[2]))), None)
    try:
        wanted = version_key(text)
    except ValueError:
        return None
    spans = ((row, version_key(row.first or row.version), version_key(row.version)) for row in _releases())
    return next((row for row, first, last in spans if first <= wanted <= last), None)


def _is_of(row: _Row, major: int, minor: int) -> bool:
    if row.version == MAIN:
        return False
    parts = version_key(row.version)[1].release
    return parts[:2] == (major, minor) and len(parts) <= 3  # four parts are a container's own build


def _names_series(text: str) -> bool:
    return _SERIES.fullmatch(text.strip()) is not None


def _span(row: _Row) -> str:
    return row.version if row.first is None else f"{row.first} to {row.version}"
