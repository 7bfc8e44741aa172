"""Speculation by release: exactly the recorded fields, the right words, the draft gate, what it keeps in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.spec.profile_sections import GATED, SpeculationKind
from trtllm_kit.upstream.speculation import (
    ENGINE_KINDS,
    KINDS,
    Kind,
    api_kinds,
    decoding_type,
    draft_architecture,
    draft_gate,
    draft_schedule,
    extra_kv_tokens,
    fields,
    fields_of,
    kv_layers,
    own_length,
    releases_with_field,
    speculation_field,
    step_tokens,
)

READ = ("1.0.0", "1.1.0", "1.2.1", "main")
CLASSES = {
    "eagle3": "Eagle3", "mtp": "MTP", "ngram": "NGram", "draft_target": "DraftTarget", "pard": "PARD", "sa": "SA",
    "auto": "Auto",
}  # fmt: skip


def recorded(shared: Path, version: str, kind: Kind) -> set[str]:
    """Return the fields that the recorded table of a release lists for a kind."""
    text = (shared / "contract" / f"llmapi-{version}.yaml").read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    if "speculative" not in document:
        own = document["definitions"][f"{CLASSES[kind]}DecodingConfig"]["fields"]
        return set(own) - {"decoding_type"}
    section = document["speculative"]
    base = section["base_fields"].get("fields", section["base_fields"])
    name = {"eagle3": "Eagle", "auto": "AUTO"}.get(kind, CLASSES[kind])
    if name not in section["kinds"]:
        return set()
    aliases = {entry["alias"].split()[0] for entry in base.values() if isinstance(entry, dict) and "alias" in entry}
    return set(base) | aliases | set(section["kinds"][name]["fields"])


@pytest.mark.parametrize("version", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_exactly_the_recorded_fields(shared: Path, version: str, kind: Kind) -> None:
    """No field of a release read exactly is missing, none was invented, and a kind it lacks has none."""
    assert recorded(shared, version, kind) == set(fields_of(kind, version))


@pytest.mark.parametrize(
    ("kind", "version", "literal", "certainty"),
    [
        ("eagle3", "1.0.0", "Eagle", "read"),
        ("eagle3", "1.2.1", "Eagle", "read"),
        ("eagle3", "1.3.0rc14", "Eagle", "near"),
        ("eagle3", "main", "Eagle3", "read"),
        ("draft_target", "1.2.1", "DraftTarget", "read"),
        ("draft_target", "main", "Draft_Target", "read"),
        ("draft_target", "1.3.0rc14", "Draft_Target", "near"),
        ("mtp", "1.1.0", "MTP", "read"),
        ("ngram", "main", "NGram", "read"),
        ("auto", "1.0.0", "AUTO", "read"),
        ("auto", "1.3.0rc14", "AUTO", "near"),
        ("pard", "1.3.0rc1", "PARD", "near"),
        ("pard", "main", "PARD", "read"),
        ("sa", "1.3.0rc14", "SA", "near"),
        ("sa", "main", "SA", "read"),
    ],
)
def test_the_word_for_a_kind_is_that_of_the_release(kind: Kind, version: str, literal: str, certainty: str) -> None:
    """EAGLE-3 is written Eagle up to 1.2.1, and the draft model lost and won an underscore."""
    found = decoding_type(kind, version)
    assert found is not None
    assert (literal, certainty) == (found.literal, found.certainty)


@pytest.mark.parametrize(
    ("version", "threshold", "measures"),
    [
        ("1.2.1", "acceptance_length_threshold", "accepted_tokens"),
        ("main", "acceptance_rate_threshold", "accepted_share"),
    ],
)
def test_the_draft_gate_was_renamed_and_measures_something_else(version: str, threshold: str, measures: str) -> None:
    """1.2 compares accepted tokens a step, main their share of the drafted ones."""
    gate = draft_gate(version)
    assert gate is not None
    assert (threshold, measures) == (gate.threshold, gate.measures)


@pytest.mark.parametrize(("version", "keys"), [("1.2.1", "least"), ("main", "largest"), ("1.1.0", None)])
def test_the_draft_schedule_turned_its_keys_round(version: str, keys: str | None) -> None:
    """1.2 names the least batch of each draft length, main the largest, and 1.1 has no schedule."""
    schedule = draft_schedule(version)
    assert keys == (schedule.keys if schedule else None)


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.3.0rc14"])
def test_releases_without_a_known_gate_have_none(version: str) -> None:
    """1.0 and 1.1 had none, and during 1.3 the names changed at a release that was not read."""
    assert draft_gate(version) is None
    assert speculation_field("eagle3", "acceptance_window", version) is None
    assert speculation_field("eagle3", "acceptance_rate_window_size", version) is None


@pytest.mark.parametrize(
    ("kind", "version", "layers"),
    [("eagle3", "1.0.0", 1), ("eagle3", "1.2.1", 3), ("eagle3", "main", 1), ("mtp", "1.2.1", 3), ("mtp", "main", 1),
     ("ngram", "1.2.1", 0), ("draft_target", "1.2.1", 1), ("pard", "main", 1), ("sa", "main", 0), ("auto", "main", 0)],
)  # fmt: skip
def test_layers_of_kv_cache_follow_the_release(kind: Kind, version: str, layers: int) -> None:
    """1.2 keeps a layer of KV cache for every drafted token of EAGLE-3."""
    assert layers == kv_layers(kind, version, draft_layers=1, draft_tokens=3)


@given(kind=st.sampled_from(KINDS), version=st.sampled_from(READ), tokens=st.integers(1, 64))
def test_a_sequence_holds_at_least_its_drafts_and_at_most_twice_as_much(kind: Kind, version: str, tokens: int) -> None:
    """Drafts and masks are in the cache while they are checked; a shared engine keeps up to a draft fewer again."""
    step = step_tokens(kind, version, tokens)
    assert tokens <= step - 1 <= extra_kv_tokens(kind, version, tokens) < step + tokens


def test_pard_computes_twice_its_drafts_in_a_step_and_other_kinds_one_more() -> None:
    """Masks stand for the tokens that the draft model proposes in its one pass; both models share the cache."""
    assert [10, 6, 6] == [step_tokens(kind, "main", 5) for kind in ("pard", "sa", "draft_target")]
    assert [13, 9, 5] == [extra_kv_tokens(kind, "main", 5) for kind in ("pard", "sa", "auto")]


@pytest.mark.parametrize(("kind", "batch", "tokens"), [("auto", 4, 5), ("auto", 5, 3), ("ngram", 4, None)])
def test_auto_alone_drafts_as_many_tokens_as_it_likes(kind: Kind, batch: int, tokens: int | None) -> None:
    """The largest batch decides its length; other kinds draft what they are told."""
    assert tokens == own_length(kind, "1.0.0", batch)


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("1.2.1", ("eagle3", "mtp", "ngram", "draft_target", "auto")),
        ("1.3.0rc2", ("eagle3", "mtp", "ngram", "draft_target", "pard", "auto")),
        ("1.3.0rc5", KINDS),
        ("main", KINDS),
    ],
)
def test_the_kinds_of_a_release_are_those_it_has_a_word_for(version: str, kinds: tuple[Kind, ...]) -> None:
    """PARD and the suffix automaton came during 1.3; the fields of a kind come with its word."""
    assert kinds == api_kinds(version)
    assert kinds == tuple(kind for kind in KINDS if "max_draft_len" in fields_of(kind, version))


def test_releases_with_a_field_are_listed_oldest_first() -> None:
    """A finding can name where a field is."""
    assert ("1.1.0", "1.2.1", "main") == releases_with_field("eagle3", "eagle3_layers_to_capture")
    assert () == releases_with_field("ngram", "eagle3_layers_to_capture")
    assert len(fields()) > 40


def test_architectures_of_drafts_are_told_apart() -> None:
    """The first EAGLE is no EAGLE-3, and other models are not known as drafts at all."""
    known = {name: draft_architecture(name) for name in ("LlamaForCausalLMEagle3", "LlamaForCausalLMEagle", "Other")}
    assert [True, False, None] == [row.eagle3 if row else None for row in known.values()]


def test_a_profile_asks_for_the_kinds_of_the_tables() -> None:
    """The words of a profile are those of the tables, and kinds with a draft gate are those that are told a length."""
    assert get_args(SpeculationKind) == get_args(Kind) == (*KINDS, *ENGINE_KINDS)
    assert tuple(kind for kind in KINDS if own_length(kind, "main", 1) is None) == GATED
