"""Which TensorRT-LLM a word names: the tag of a container, a package with its version, a branch (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.found import Where
from trtllm_kit.upstream.releases import known_releases, release, unknown_release

_TRITON = re.compile(r"tritonserver:(\d\d\.\d\d(?:\.\d+)?)-trtllm-python-py3")
_OWN = re.compile(r"tensorrt-llm/(?:release|devel):v?([\w.]+)")
_PACKAGE = re.compile(r"tensorrt[_-]llm==v?([\w.]+)")
_BRANCH = re.compile(r"v(\d+\.\d+\.\d+\S*)")
_SOURCES = re.compile(r"tensorrt-?llm(_backend)?(\.git)?/?$", re.IGNORECASE)
_SERVES = re.compile(r"tritonserver|tensorrt[_-]?llm|trtllm", re.IGNORECASE)


@dataclass(frozen=True)
class Named:
    """A release that some file names."""

    release: str
    where: Where


def releases_in(text: str) -> Iterator[str]:
    """Yield the releases that an image or a package with its version names, in the spelling of the table."""
    for match in _TRITON.finditer(text):
        if match[1] in _by_tag():
            yield _by_tag()[match[1]]
    for pattern in (_OWN, _PACKAGE):
        for match in pattern.finditer(text):
            if not unknown_release(match[1]):
                yield release(match[1]).version


def checked_out(words: list[str]) -> Iterator[str]:
    """Yield the release whose branch of the sources a command fetches (``git clone -b v0.16.0``)."""
    if words[:2] == ["git", "clone"] and any(_SOURCES.search(word) for word in words):
        for word in words:
            match = _BRANCH.fullmatch(word.partition("=")[2] or word)
            if match and not unknown_release(match[1]):
                yield release(match[1]).version


def serves(image: str) -> bool:
    """Whether an image is named like one that holds Triton or TensorRT-LLM."""
    return _SERVES.search(image) is not None


@cache
def _by_tag() -> dict[str, str]:
    tags = re.compile(r"tritonserver:([\d.]+)-trtllm")
    return {
        match[1]: name for name in known_releases() for image in release(name).images if (match := tags.search(image))
    }
