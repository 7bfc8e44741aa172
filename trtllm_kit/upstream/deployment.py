"""What a deployment is written in: flags of servers, labels of nodes, kinds of objects, containers, exporters."""

from __future__ import annotations

from typing import Literal

from trtllm_kit.upstream.facts import Fact, in_range, read_table, rows

_TABLE = "deployment"
_RUNTIME = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"


class ServerFlag(Fact):
    """One flag of tritonserver."""

    name: str
    spelling: str
    """With its dashes, and its value where it always has the same."""
    does: str


class _Product(Fact):
    name: str
    label: str


class _Kind(Fact):
    name: str
    api: str
    needs: str = ""


class _Dynamo(Fact):
    name: str
    """Version of Dynamo."""
    trtllm: str


class Counter(Fact):
    """One line of the list of the DCGM exporter."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    commented: bool = False
    """Whether the exporter's own list leaves it out."""


def server_flag(name: str, version: str) -> str | None:
    """Return how tritonserver spells a flag in the containers of a release; None when it has no such flag."""
    found = (row for row in rows(_TABLE, "flags", ServerFlag) if row.name == name and row.holds(version))
    return next((row.spelling for row in found), None)


def serve_option(flag: str, version: str) -> str | None:
    """Return how trtllm-serve spells an option in a release, by its newest spelling; None when it has none."""
    for row in read_table("scripts")["flags"]:
        named = row["program"] == "trtllm-serve" and row["flag"] == flag
        if named and in_range(version, row.get("since"), row.get("until")):
            return str((row.get("aliases") or [flag])[-1])
    return None


def gpu_label(gpu: str) -> str | None:
    """Return what a node with that GPU (a name of the hardware catalogue) is labelled with; None when unknown."""
    return next((row.label for row in rows(_TABLE, "products", _Product) if row.name == gpu), None)


def api_of(kind: str) -> str:
    """Return the ``apiVersion`` of a kind of object; raises ``KeyError`` for a kind that is not in the table."""
    return {row.name: row.api for row in rows(_TABLE, "kinds", _Kind)}[kind]


def needs_of(kind: str) -> str:
    """Return what a bare cluster lacks for a kind of object, in words; empty when nothing."""
    return {row.name: row.needs for row in rows(_TABLE, "kinds", _Kind)}[kind]


def dynamo_image(version: str) -> str | None:
    """Return Dynamo's newest runtime container that holds a TensorRT-LLM release; None when none is known."""
    found = [row.name for row in rows(_TABLE, "dynamo", _Dynamo) if row.trtllm == version]
    return f"{_RUNTIME}:{found[-1]}" if found else None


def dynamo_releases() -> tuple[str, ...]:
    """Return the TensorRT-LLM releases that Dynamo's containers hold, oldest first."""
    return tuple(dict.fromkeys(row.trtllm for row in rows(_TABLE, "dynamo", _Dynamo)))


def counters() -> tuple[Counter, ...]:
    """Return the counters to read of every GPU, in the order of the file."""
    return rows(_TABLE, "counters", Counter)
