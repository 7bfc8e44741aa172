"""TensorRT-LLM releases: what serves them, which containers hold them, and how well the kit knows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from packaging.version import Version

from trtllm_kit.errors import UsageError
from trtllm_kit.frozen import Frozen
from trtllm_kit.upstream.facts import MAIN, Fact, rows, version_key

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
        """The Triton container to serve it from."""
        return self.images[0] if self.images else None


@cache
def release(version: str) -> Release:
    """Return the release that ``1.2.1``, ``v1.2.1``, ``1.2`` (its newest), ``1.3.0rc14`` or ``main`` names.

    Raises ``UsageError`` with the known releases for any other text.
    """
    row = _find(version.strip())
    if row is None:
        raise UsageError(
            f"trtllm_version {version!r} is not a release trtkit knows",
            why=unknown_release(version),
            hint=f"set trtllm_version to one of them, e.g. trtllm_version: {_newest_in_a_container()}",
        )
    name = row.version if names_series(version) else _name(version.strip(), row)
    named = name == row.version  # the other releases of a row's span are in no container, and their dates unknown
    return Release(
        version=name,
        date=row.date if named else None,
        toolchains=tuple(tool.name for tool in toolchains() if tool.holds(name)),
        images=tuple(f"nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3" for tag in row.images if named),
        triton_llmapi_model=any(fact.holds(name) for fact in rows("releases", "triton_llmapi_model", _LlmapiModel)),
    )


def unknown_release(version: str) -> str:
    """Return which releases are known when ``version`` names none of them; empty when it does."""
    return "" if _find(version.strip()) else "known are " + ", ".join(_span(row) for row in _releases())


def nearest_release(version: str, suits: Callable[[str], bool]) -> str | None:
    """Return the nearest release that suits: the first later one in a container, else the last earlier one in one.

    Without any in a container the last that suits; None when none does.
    """
    suitable = [name for name in known_releases() if name != version and suits(name)]
    held = [name for name in suitable if release(name).images]
    later = [name for name in held if version_key(name) > version_key(version)]
    found = later[:1] or held[-1:] or suitable[-1:]
    return found[0] if found else None


def names_series(text: str) -> bool:
    """Whether a text like ``1.2`` or ``1.3rc`` names a series, and so its newest release."""
    return _SERIES.fullmatch(text.strip()) is not None


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
    if text != MAIN and _own_build(wanted[1]):
        return None  # a build of somebody's own, about which no table speaks
    spans = ((row, version_key(row.first or row.version), version_key(row.version)) for row in _releases())
    return next((row for row, first, last in spans if first <= wanted <= last), None)


def _own_build(version: Version) -> bool:
    return version.is_devrelease or bool(version.local or version.epoch)


def _is_of(row: _Row, major: int, minor: int) -> bool:
    if row.version == MAIN:
        return False
    parts = version_key(row.version)[1].release
    return parts[:2] == (major, minor) and len(parts) <= 3  # four parts are a container's own build


def _name(text: str, row: _Row) -> str:
    """Return the one spelling of a release: ``v1.2.1`` and ``1.2.1`` are the same."""
    if version_key(text) == version_key(row.version):
        return row.version
    version = version_key(text)[1]
    numbers = ".".join(str(part) for part in (*version.release, 0, 0)[: max(3, len(version.release))])
    candidate = "".join(str(part) for part in version.pre or ())
    return numbers + candidate + (f".post{version.post}" if version.post is not None else "")


def _newest_in_a_container() -> str:
    return next(row.version for row in reversed(_releases()) if row.images)


def _span(row: _Row) -> str:
    return row.version if row.first is None else f"{row.first} to {row.version}"
