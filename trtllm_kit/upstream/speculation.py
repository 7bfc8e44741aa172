"""Speculative decoding by release: the word for each kind, its fields, what it keeps in memory, its draft gate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Kind = Literal[
    "eagle3", "mtp", "ngram", "draft_target", "pard", "sa", "auto", "medusa", "eagle", "redrafter", "lookahead"
]
KINDS: tuple[Kind, ...] = ("eagle3", "mtp", "ngram", "draft_target", "pard", "sa", "auto")
"""Kinds of the LLM API, in one release or another."""
ENGINE_KINDS: tuple[Kind, ...] = ("medusa", "eagle", "redrafter", "lookahead")
"""Kinds of engines alone."""
SECTION = "speculative_config"
_TABLE = "speculation"


class DecodingType(Fact):
    """How a release spells a kind in ``decoding_type``."""

    kind: Kind
    literal: str
    also: tuple[str, ...] = ()
    """Other words that it takes for the same."""

    def takes(self, literal: object) -> bool:
        """Whether the release understands a word as this kind."""
        return literal == self.literal or literal in self.also


class Field(Fact):
    """One field of ``speculative_config`` in one range of releases."""

    key: str
    kinds: tuple[Kind, ...] = KINDS
    type: str
    internal: bool = False
    """The release fills it in itself."""
    default: int | None = None
    """What the plan takes when it is not asked, where the releases do not agree."""


class _KvLayers(Fact):
    kind: Kind
    layers: Literal["of_the_draft", "a_token"]


class _OneEngine(Fact):
    kind: Kind


class _StepTokens(Fact):
    kind: Kind
    times: int


class _OnePass(Fact):
    kind: Kind


class _OwnLength(Fact):
    kind: Kind
    tokens: int
    up_to_batch: int
    beyond: int


class _Heads(Fact):
    kind: Kind
    heads: int


class _Mode(Fact):
    kind: Kind
    mode: str


class Gate(Fact):
    """How a release names and measures its draft gate."""

    threshold: str
    window: str
    measures: Literal["accepted_tokens", "accepted_share"]


class Schedule(Fact):
    """How a release's ``draft_len_schedule`` maps batch sizes to draft lengths."""

    keys: Literal["least", "largest"]
    """Whether a key is the least batch of its length, or the largest."""


class DraftArchitecture(Fact):
    """An architecture that draft checkpoints name in ``config.json``."""

    architecture: str
    eagle3: bool


def decoding_type(kind: Kind, version: str) -> DecodingType | None:
    """Return how that release's LLM API spells a kind; None where it does not have the kind."""
    found = (row.seen_from(version) for row in _literals() if row.kind == kind and row.holds(version))
    return next(found, None)


def api_kinds(version: str) -> tuple[Kind, ...]:
    """Return the kinds that the LLM API of that release has."""
    return tuple(kind for kind in KINDS if _has(kind, version))


def builder_mode(kind: Kind, version: str) -> str | None:
    """Return what ``trtllm-build`` of that release calls a kind; None where it does not have it."""
    return next((row.mode for row in rows(_TABLE, "modes", _Mode) if row.kind == kind and row.holds(version)), None)


def usual_heads(kind: Kind, version: str) -> int:
    """Return how many heads a given checkpoint of that kind holds unless its maker said otherwise; 0 without."""
    found = (row.heads for row in rows(_TABLE, "heads", _Heads) if row.kind == kind and row.holds(version))
    return next(found, 0)


def builder_kinds(version: str) -> tuple[Kind, ...]:
    """Return the kinds that ``trtllm-build`` of that release has."""
    return tuple(row.kind for row in rows(_TABLE, "modes", _Mode) if row.holds(version))


def speculation_field(kind: Kind, key: str, version: str) -> Field | None:
    """Return what that release says of a field of a kind, or None when the kind does not take it there."""
    return next((row.seen_from(version) for row in fields() if row.key == key and _fits(row, kind, version)), None)


def releases_with_field(kind: Kind, key: str) -> tuple[str, ...]:
    """Return the releases read exactly whose kind takes the field, oldest first."""
    return tuple(version for version in releases_read() if speculation_field(kind, key, version) is not None)


def releases_read() -> tuple[str, ...]:
    """Return the releases whose own fields were read, oldest first: what another one lacks is not certain."""
    return next(row for row in fields() if row.read_in).read_in


def kv_layers(kind: Kind, version: str, draft_layers: int, draft_tokens: int) -> int:
    """Return the layers of KV cache that drafting keeps beside the model's own."""
    found = (row for row in rows(_TABLE, "kv_layers", _KvLayers) if row.kind == kind and row.holds(version))
    row = next(found, None)
    if row is None:
        return 0
    return draft_tokens if row.layers == "a_token" else draft_layers


def extra_kv_tokens(kind: Kind, version: str, draft_tokens: int) -> int:
    """Return the tokens a sequence holds in the KV cache beyond its text: the drafts, and those of a shared engine."""
    shared = any(row.kind == kind and row.holds(version) for row in rows(_TABLE, "one_engine", _OneEngine))
    drafts = step_tokens(kind, version, draft_tokens) - 1
    return drafts + draft_tokens - 1 if shared else drafts


def step_tokens(kind: Kind, version: str, draft_tokens: int) -> int:
    """Return the tokens of a sequence in one generation step: its next one, the drafts, and masks of some kinds."""
    found = (row.times for row in rows(_TABLE, "step_tokens", _StepTokens) if row.kind == kind and row.holds(version))
    return next((times * draft_tokens for times in found), 1 + draft_tokens)


def drafts_at_once(kind: Kind, version: str) -> bool:
    """Whether a draft model runs once for all tokens of a step, and not once for each."""
    return any(row.kind == kind and row.holds(version) for row in rows(_TABLE, "one_pass", _OnePass))


def own_length(kind: Kind, version: str, batch: int) -> int | None:
    """Return the tokens that a kind drafts of its own accord where ``max_batch_size`` is that; None: as it is told."""
    found = (row for row in rows(_TABLE, "own_lengths", _OwnLength) if row.kind == kind and row.holds(version))
    return next((row.tokens if batch <= row.up_to_batch else row.beyond for row in found), None)


def draft_gate(version: str) -> Gate | None:
    """Return the draft gate of a release, or None when it has none, or none whose names are known."""
    return next((row for row in rows(_TABLE, "gate", Gate) if row.holds(version)), None)


def draft_schedule(version: str) -> Schedule | None:
    """Return how a release's draft length follows the batch, or None when it cannot."""
    found = (row for row in rows(_TABLE, "schedules", Schedule) if row.holds(version))
    return next((row.seen_from(version) for row in found), None)


def draft_architecture(name: str) -> DraftArchitecture | None:
    """Return what is known of a draft's architecture, or None."""
    return next((row for row in rows(_TABLE, "drafts", DraftArchitecture) if row.architecture == name), None)


@cache
def fields() -> tuple[Field, ...]:
    """Return every row of the fields."""
    return rows(_TABLE, "fields", Field)


def fields_of(kind: Kind, version: str) -> Iterator[str]:
    """Yield the fields that a kind takes in that release."""
    return (row.key for row in fields() if _fits(row, kind, version))


def _fits(row: Field, kind: Kind, version: str) -> bool:
    return kind in row.kinds and row.holds(version) and _has(kind, version)


def _has(kind: Kind, version: str) -> bool:
    return any(row.kind == kind and row.holds(version) for row in _literals())


@cache
def _literals() -> tuple[DecodingType, ...]:
    return rows(_TABLE, "literals", DecodingType)
