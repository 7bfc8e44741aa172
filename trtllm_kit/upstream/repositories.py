"""What the models of an ``inflight_batcher_llm`` repository read, and which backends a container holds."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, read_table, rows

_TABLE = "repositories"


class _Keys(Fact):
    model: str
    keys: tuple[str, ...]


def parameter_keys(model: str, version: str) -> frozenset[str] | None:
    """Return the parameters that a model of that name reads in that release; None for a name of somebody's own."""
    named = [row for row in _parameters() if row.model == model]
    return frozenset(key for row in named if row.holds(version) for key in row.keys) if named else None


def ordered_parameters(model: str, version: str) -> tuple[str, ...]:
    """Return the parameters that a model of that name reads in that release, in the order of the table."""
    return tuple(key for row in _parameters() if row.model == model and row.holds(version) for key in row.keys)


def required_parameters(model: str) -> tuple[str, ...]:
    """Return the quoted parameters without which a model of that name does not load."""
    return tuple(read_table(_TABLE)["required"].get(model, ()))


def backends_of(image: str) -> tuple[str, ...] | None:
    """Return the backends of a container by its name; None for one that the table does not know."""
    kinds = read_table(_TABLE)["images"]
    return next((tuple(kinds[kind]) for kind in kinds if kind in image), None)


@cache
def _parameters() -> tuple[_Keys, ...]:
    return rows(_TABLE, "parameters", _Keys)
