"""What the builder of engines makes of its options: which architectures and formats its fusions are for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "builder"
Rule = Literal["reduce_fusion", "reduce_fusion_stages", "fp8_attention"]


class _Row(Fact):
    name: Rule
    values: tuple[str, ...] = ()
    least_capability: int = 0
    """The first compute capability, times ten, whose kernels do it."""


class Bound(Fact):
    """The most a speculative mode takes."""

    mode: str
    option: str
    most: int


class Conflict(Fact):
    """Options that are refused together, or with what the model and the GPU are."""

    name: str
    when: dict[str, tuple[bool | int | str, ...]]
    """Values of each option: words, ``positive`` for any number above 0, ``given`` for any but ``disable``."""
    note: str
    advice: str
    formats: tuple[str, ...] = ()
    unless_formats: tuple[str, ...] = ()
    unless_architectures: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    """Compute capabilities from the first to before the second."""

    def matches(self, options: Mapping[str, object]) -> bool:
        """Whether every option has one of its values; an option that is not passed has none but 0."""
        return all(any(_is(options.get(name), one) for one in values) for name, values in self.when.items())


def conflicts(version: str) -> tuple[Conflict, ...]:
    """Return what that release refuses together."""
    return tuple(row.seen_from(version) for row in rows(_TABLE, "conflicts", Conflict) if row.holds(version))


def _is(found: object, wanted: bool | int | str) -> bool:
    if wanted == "positive":
        return isinstance(found, int) and found > 0
    if wanted == "given":
        return found not in (None, "disable")
    return (found or 0) == wanted if wanted == 0 and wanted is not False else found == wanted


def reduces_in_norm(version: str) -> tuple[str, ...]:
    """Return the architectures for which that release fuses reductions with the norm behind them."""
    return _values("reduce_fusion", version)


def takes_stages_in_norm(version: str) -> bool:
    """Whether that release keeps fused reductions beside pipeline stages."""
    return any(row.holds(version) for row in _rows() if row.name == "reduce_fusion_stages")


def fp8_attention_formats(version: str) -> tuple[str, ...]:
    """Return the formats of weights with which that release reads an FP8 KV cache in paged context attention."""
    return _values("fp8_attention", version)


def fp8_attention_capability(version: str) -> int:
    """Return the first compute capability, times ten, that reads an FP8 KV cache in context attention there."""
    return next((row.least_capability for row in _rows() if row.name == "fp8_attention" and row.holds(version)), 0)


def mode_bounds(mode: str, version: str) -> tuple[Bound, ...]:
    """Return what that release bounds in a speculative mode."""
    return tuple(
        row.seen_from(version) for row in rows(_TABLE, "bounds", Bound) if row.mode == mode and row.holds(version)
    )


def _values(name: Rule, version: str) -> tuple[str, ...]:
    return next((row.values for row in _rows() if row.name == name and row.holds(version)), ())


@cache
def _rows() -> tuple[_Row, ...]:
    return rows(_TABLE, "rules", _Row)
