"""The metric families of each server, by release."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Server = Literal["trtllm-serve", "tritonserver"]


class Family(Fact):
    """One family of a server's page, or one field of its records."""

    name: str
    server: Server
    path: str
    kind: Literal["counter", "gauge", "histogram", "summary", "field"]
    labels: tuple[str, ...] = ()
    """Besides those that every family of the page has."""
    needs: str = ""
    """What must be set for it to be filled; empty when nothing."""
    merged: str = ""
    """The day it went into main, where the first release with it is not known."""


def families_of(server: Server, path: str, version: str) -> tuple[Family, ...]:
    """Return what a page of a server shows in that release, in the table's order."""
    found = (row for row in _families() if (row.server, row.path) == (server, path) and row.holds(version))
    return tuple(row.seen_from(version) for row in found)


@cache
def _families() -> tuple[Family, ...]:
    return rows("metrics", "families", Family)
