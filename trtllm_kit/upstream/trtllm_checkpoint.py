"""What a release accepts in the checkpoint that ``trtllm-build`` reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Section = Literal["mapping", "quantization", "moe"]
"""Sections of ``config.json`` that upstream builds by keyword, so that an unknown key is a ``TypeError``."""


class RankModel(Fact):
    """One architecture that the kit lays out for it."""

    architecture: str
    qwen_type: str | None = None
    """What upstream's Qwen classes go by; None for those that its Llama classes read."""
    modelopt: str
    """The ``decoder_type`` of ModelOpt's exporter."""
    hf_type: str
    """``model_type`` of the same model's ``config.json`` at Hugging Face."""
    experts: bool = False
    """Whether its feed-forward blocks have routed experts."""


class RankFormat(Fact):
    """One number format of weights in it."""

    format: str
    packed: bool
    """False where the weights lie in the file in 16 bit, and ``trtllm-build`` makes the format as it loads them."""
    experts: bool
    """Whether routed experts can have it."""
    input_factor: bool = False
    """Whether a 16-bit factor of each input element stands beside the weight."""
    vocabulary: int = 1
    """What the vocabulary, filled up with rows of zeros, is a multiple of."""
    copies_heads: bool = True
    """Whether several ranks can hold the same head of keys and values."""


class _Key(Fact):
    section: Section
    key: str


class _Part(Fact):
    part: str


class _KvFormat(Fact):
    format: str


class _Exclusion(Fact):
    pattern: str
    format: str | None = None


class _DefaultOfKey(Fact):
    key: str
    value: int


class _Mode(Fact):
    mode: str
    value: int


class _RopeKind(Fact):
    kind: str


class _Word(Fact):
    name: str
    kind: str | None = None
    """``qwen_type``."""
    architecture: str


class _Named(Fact):
    name: str
    what: str = ""


class _Neutral(Fact):
    key: str
    values: tuple[bool | int | float, ...]


def rank_model(architecture: str, version: str) -> RankModel | None:
    """Return how that release reads the architecture, or None when the kit cannot lay it out for it."""
    found = (row for row in rows(_TABLE, "models", RankModel) if row.architecture == architecture)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def rank_format(name: str, version: str) -> RankFormat | None:
    """Return how a format of weights stands in that release's checkpoint, or None when it has none."""
    found = (row for row in rows(_TABLE, "formats", RankFormat) if row.format == name)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def rank_formats(version: str) -> tuple[str, ...]:
    """Return the formats of weights that release's checkpoint can have, without the one of 16 bit."""
    return tuple(row.format for row in rows(_TABLE, "formats", RankFormat) if row.holds(version))


def kv_scale_parts(version: str) -> tuple[str, ...]:
    """Return the scales of a quantised KV cache that release reads: one for both, later one for each as well."""
    return tuple(row.part for row in rows(_TABLE, "kv_scales", _Part) if row.holds(version))


def kv_formats(version: str) -> tuple[str, ...]:
    """Return what a quantised KV cache can be in that release."""
    return tuple(row.format for row in rows(_TABLE, "kv_formats", _KvFormat) if row.holds(version))


def exclusions(number_format: str, version: str) -> tuple[str, ...]:
    """Return the module patterns that release never gives a format, those of that format alone first."""
    held = [row for row in rows(_TABLE, "exclusions", _Exclusion) if row.holds(version)]
    own = [row.pattern for row in held if row.format == number_format]
    return (*own, *(row.pattern for row in held if row.format is None))


def default_of_key(key: str) -> int:
    """Return what upstream's converter writes under a key of ``config.json`` where the source says nothing."""
    return next(row.value for row in rows(_TABLE, "defaults_of_keys", _DefaultOfKey) if row.key == key)


def normalization_mode(*, renormalises: bool) -> int:
    """Return the value of ``moe.normalization_mode``: whether the weights of the chosen experts sum up to one."""
    wanted = "renormalize" if renormalises else "none"
    return next(row.value for row in rows(_TABLE, "normalization_modes", _Mode) if row.mode == wanted)


def vocabulary_multiple(formats: Iterable[str], version: str) -> int:
    """Return what the vocabulary of a checkpoint with such weights is a multiple of, filled up with zeros."""
    found = (rank_format(name, version) for name in formats)
    return max((row.vocabulary for row in found if row is not None), default=1)


def rope_kinds(version: str) -> tuple[str, ...]:
    """Return the kinds of rope scaling that release's engines apply to these models."""
    return tuple(row.kind for row in rows(_TABLE, "rope_kinds", _RopeKind) if row.holds(version))


def architectures() -> tuple[str, ...]:
    """Return the architectures whose ranks the kit knows, of any release."""
    return tuple(dict.fromkeys(row.architecture for row in rows(_TABLE, "models", RankModel)))


def described_model(architecture: str) -> RankModel:
    """Return what holds of one of ``architectures`` in every release; raises ``StopIteration`` for another one."""
    return next(row for row in rows(_TABLE, "models", RankModel) if row.architecture == architecture)


def architecture_of(word: str, qwen_type: str | None) -> str | None:
    """Return the architecture of a checkpoint's weights, by its own word and ``qwen_type``; None for an unknown one."""
    if word in architectures():
        return word
    found = [row for row in rows(_TABLE, "words", _Word) if row.name == word]
    exact = (row.architecture for row in found if row.kind is not None and row.kind == qwen_type)
    return next(exact, next((row.architecture for row in found if row.kind is None), None))


def is_drafting_head(tensor: str) -> bool:
    """Whether a tensor is of heads that draft."""
    return any(tensor.startswith(row.name) for row in rows(_TABLE, "drafting_heads", _Named))


def is_remade(tensor: str) -> bool:
    """Whether a tensor holds what loaders make anew."""
    return any(tensor.endswith(f".{row.name}") for row in rows(_TABLE, "remade", _Named))


def foreign_part(tensor: str) -> str | None:
    """Return who writes a tensor that stands beside codes of a layout of its own; None for no such tensor."""
    return next((row.what for row in rows(_TABLE, "foreign_parts", _Named) if tensor.endswith(f".{row.name}")), None)


def neutral_values() -> dict[str, tuple[bool | int | float, ...]]:
    """Return what dotted keys of ``config.json`` are where the arithmetic is that of the Hugging Face model."""
    return {row.key: row.values for row in rows(_TABLE, "neutral", _Neutral)}


def normalises(mode: int) -> bool | None:
    """Return whether experts' weights sum up to one under a value of ``moe.normalization_mode``; None for another."""
    named = {row.value: row.mode == "renormalize" for row in rows(_TABLE, "normalization_modes", _Mode)}
    return named.get(mode)


def strict_keys(section: Section, version: str) -> frozenset[str]:
    """Return the keys that release accepts in a section of ``config.json``."""
    return frozenset(
        row.key for row in rows(_TABLE, "strict_keys", _Key) if row.section == section and row.holds(version)
    )


def taken_keys(section: Section, version: str) -> frozenset[str]:
    """Return the keys that release takes in a section of somebody's checkpoint: those trtkit writes, and late ones."""
    late = (row.key for row in rows(_TABLE, "late_keys", _Key) if row.section == section and row.holds(version))
    return strict_keys(section, version) | frozenset(late)


def spreads_remainder(version: str) -> bool:
    """Whether the layers that pipeline stages cannot share evenly go to the first ones; else they are lost."""
    return any(row.holds(version) for row in rows(_TABLE, "stage_remainder", Fact))


_TABLE = "trtllm_checkpoint"
