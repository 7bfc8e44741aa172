"""A rule about images and packages that are named: they hold a release, and that may be another one (PF49)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.releases import release as release_named


def other_release(named: str, text: str, release: str) -> Iterator[Finding]:
    """PF49: an image or package, written as ``text``, that holds release ``named`` where another one is to serve."""
    if named == release:
        return
    images = release_named(release).images
    way = f"image: {images[0]}" if images else f"an image of {release}: no Triton container of it is known"
    yield found("PF49", Severity.WARNING, f"This holds release {named}, and not {release}.", text, way)
