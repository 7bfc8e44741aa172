"""Speculation by release: exactly the recorded fields, the right words, the draft gate, what it keeps in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.facts import version_key
from trtllm_kit.upstream.speculation import (
    KINDS,
    Kind,
    decoding_type,
    draft_architecture,
    draft_gate,
    draft_schedule,
    extra_kv_tokens,
    fields,
    fields_of,
    kv_layers,
    releases_with_field,
    speculation_field,
)

READ = ("1.0.0", "1.1.0", "1.2.1", "main")
CLASSES = {"eagle3": "Eagle3", "mtp": "MTP", "ngram": "NGram", "draft_target": "DraftTarget"}


def recorded(shared: Path, version: str, kind: Kind) -> set[str]:
    """Return the fields that the recorded table of a release lists for a kind."""
    text = (shared / "contract" / f"llmapi-{version}.yaml").read_text("utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    if "speculative" not in document:
        own = document["definitions"][f"{CLASSES[kind]}DecodingConfig"]["fields"]
        return set(own) - {"decoding_type"}
    section = document["speculative"]
    base = section["base_fields"].get("fields", section["base_fields"])
    name = {"eagle3": "Eagle"}.get(kind, CLASSES[kind])
    aliases = {entry["alias"].split()[0] for entry in base.values() if isinstance(entry, dict) and "alias" in entry}
    return set(base) | aliases | set(section["kinds"][name]["fields"])


@pytest.mark.parametrize("version", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_exactly_the_recorded_fields(shared: Path, version: str, kind: Kind) -> None:
    """No field of a release read exactly is missing, and none was invented."""
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
    ],
)
def test_the_word_for_a_kind_is_that_of_the_release(kind: Kind, version: str, literal: str, certainty: str) -> None:
    """EAGLE-3 is written Eagle up to 1.2.1, and the draft model lost and won an underscore."""
    found = decoding_type(kind, version)
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
     ("ngram", "1.2.1", 0), ("draft_target", "1.2.1", 1)],
)  # fmt: skip
def test_layers_of_kv_cache_follow_the_release(kind: Kind, version: str, layers: int) -> None:
    """1.2 keeps a layer of KV cache for every drafted token of EAGLE-3."""
    assert layers == kv_layers(kind, version, draft_layers=1, draft_tokens=3)


@given(kind=st.sampled_from(KINDS), version=st.sampled_from(READ), tokens=st.integers(1, 64))
def test_a_sequence_holds_at_least_its_drafts_and_at_most_twice_as_much(kind: Kind, version: str, tokens: int) -> None:
    """Drafts are in the cache while they are checked; a shared engine keeps one fewer again."""
    assert tokens <= extra_kv_tokens(kind, version, tokens) < 2 * tokens + (kind in ("ngram", "draft_target"))


def test_every_kind_has_a_word_in_every_release_of_the_llm_api() -> None:
    """A plan for any release can be written."""
    later = [name for name in known_releases() if version_key(name) >= version_key("1.0.0")]
    assert all(decoding_type(kind, version).literal for kind in KINDS for version in later)


def test_releases_with_a_field_are_listed_oldest_first() -> None:
    """A finding can name where a field is."""
    assert ("1.1.0", "1.2.1", "main") == releases_with_field("eagle3", "eagle3_layers_to_capture")
    assert () == releases_with_field("ngram", "eagle3_layers_to_capture")
    assert len(fields()) > 40


def test_architectures_of_drafts_are_told_apart() -> None:
    """The first EAGLE is no EAGLE-3, and other models are not known as drafts at all."""
    known = {name: draft_architecture(name) for name in ("LlamaForCausalLMEagle3", "LlamaForCausalLMEagle", "Other")}
    assert [True, False, None] == [row.eagle3 if row else None for row in known.values()]
