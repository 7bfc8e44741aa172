"""What a release calls a number format: QuantAlgo, by the layout of the checkpoint."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import MAIN, Fact, rows

Layout = Literal["unified_hf", "tensorrt_llm"]
MIXED_PRECISION = "MIXED_PRECISION"
"""The algo of a checkpoint whose layers differ."""


class QuantAlgo(Fact):
    """The word for a format, and the releases that have it and code that runs it."""

    format: str
    layout: Layout
    algo: str
    note: str = ""
    """What a reader of the finding should know, as a clause."""
    in_release: bool = True
    """Whether the asked release is one of them."""


class _BesideExperts(Fact):
    format: str
    layout: Layout


class UnreadAlgo(Fact):
    """A word that ModelOpt writes and no release reads."""

    scheme: str
    note: str
    instead: str
    """What to do instead, as the end of a sentence that begins with "or"."""


class _LatentInput(Fact):
    part: str
    formats: tuple[str, ...]


def quant_algo(number_format: str, layout: Layout, version: str) -> QuantAlgo:
    """Return the word of a format in a layout; outside its releases the nearest row, with ``in_release`` false.

    Raises ``KeyError`` for 16 bit, which has no word, and for a format no layout stores.
    """
    found = [row for row in _rows() if row.format == number_format and row.layout == layout]
    for row in found:
        if row.holds(version):
            return row.seen_from(version)
    if not found:
        raise KeyError(number_format)
    return found[-1].model_copy(update={"in_release": False})


def algos_of(number_format: str) -> tuple[str, ...]:
    """Return every word for a format, of any layout and release."""
    return tuple(dict.fromkeys(row.algo for row in _rows() if row.format == number_format))


def format_named(algo: str) -> str | None:
    """Return the format that checkpoints of the Hugging Face layout have by a word; of two the later row, or None."""
    return next((row.format for row in reversed(_rows()) if row.algo == algo and row.layout == "unified_hf"), None)


def unread_algo(scheme: str) -> UnreadAlgo | None:
    """Return the word of a scheme that no release reads, alone or among those of layers that differ; None without."""
    words = scheme.replace(",", " ").split()
    return next((row for row in rows("quant_algos", "unread", UnreadAlgo) if row.scheme in words), None)


def algo_name(number_format: str, layout: Layout) -> str:
    """Return the word alone, which is the same in every release that has it."""
    return quant_algo(number_format, layout, MAIN).algo


@cache
def latent_inputs(number_format: str) -> frozenset[str]:
    """Return the linear layers in front of latent attention that cannot have a format, by their last name."""
    held = rows("quant_algos", "latent_inputs", _LatentInput)
    return frozenset(row.part for row in held if number_format not in row.formats)


def exported_beside_experts(number_format: str, layout: Layout) -> bool:
    """Whether ModelOpt exports a format that it searches of a model that has experts, in a layout."""
    held = rows("quant_algos", "beside_experts", _BesideExperts)
    return any((row.format, row.layout) == (number_format, layout) for row in held)


def kv_algo(number_format: str) -> str | None:
    """Return the word of a KV cache format, which is the same in every layout; None for 16 bit."""
    return _KV[number_format]


_KV = {"bf16": None, "fp8": "FP8", "int8": "INT8", "nvfp4": "NVFP4"}


@cache
def _rows() -> tuple[QuantAlgo, ...]:
    return rows("quant_algos", "algos", QuantAlgo)
