"""Speculation and engine settings: which keys go with which kind, refused all at once and each at its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trtllm_kit.errors import ProfileError
from trtllm_kit.spec.load import load_profile
from trtllm_kit.spec.profile_sections import NEEDED, POSSIBLE, Engine, Speculation, SpeculationKind

KINDS = get_args(SpeculationKind)
OWN: dict[str, Any] = {
    "draft_checkpoint": "a/folder", "capture_layers": (1, 15, 28), "max_ngram": 4, "acceptance_threshold": 0.5,
}  # fmt: skip
HEAD = "schema_version: 1\nname: x\nhardware: h200x1\ntrtllm_version: 1.2.1\n"


def legal(kind: str) -> dict[str, Any]:
    """Return every key that means something to a kind."""
    words = {**NEEDED, **POSSIBLE}
    own = {key: OWN[key] for key in OWN if kind in words[key]}
    return {
        "kind": kind,
        "draft_tokens": 3,
        **own,
        **({"acceptance_window": 10} if "acceptance_threshold" in own else {}),
    }


def problems(tmp_path: Path, text: str) -> list[str]:
    """Return what is wrong with a profile that ends with that text."""
    file = tmp_path / "x.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))
    return [problem.split(": ", 1)[1] for problem in caught.value.problems]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_a_kind_may_stand_beside_it(kind: str) -> None:
    """What means something is taken as it stands."""
    wanted = legal(kind)
    assert wanted == Speculation.model_validate(wanted).model_dump(include=set(wanted))


@given(kind=st.sampled_from(KINDS), key=st.sampled_from(sorted(OWN)))
def test_a_key_is_taken_by_exactly_the_kinds_it_means_something_to(kind: str, key: str) -> None:
    """A key of another kind is refused at the key."""
    allowed = kind in {**NEEDED, **POSSIBLE}[key]
    document = legal(kind) | {key: OWN[key]}
    if allowed:
        assert OWN[key] == getattr(Speculation.model_validate(document), key)
        return
    with pytest.raises(ValidationError) as caught:
        Speculation.model_validate(document)
    assert (key,) in [one["loc"] for one in caught.value.errors()]


def test_all_that_is_wrong_with_speculation_is_told_at_once(tmp_path: Path) -> None:
    """Missing and meaningless keys each have a line, beside the wrong values of other sections."""
    text = (
        "speculation: {kind: eagle3, draft_tokens: 0, acceptance_threshold: 0.6, max_ngram: 2}\n"
        "engine: {stream_interval: 0}\n"
    )
    found = problems(tmp_path, text)
    starts = [problem.split(": ")[0] for problem in found]
    assert {
        "speculation.draft_tokens", "speculation.draft_checkpoint", "speculation.acceptance_window",
        "speculation.max_ngram", "engine.stream_interval",
    } == set(starts)  # fmt: skip
    assert 5 == len(found)
    assert any("has no meaning with kind eagle3, only with ngram and sa; leave it out" in problem for problem in found)
    assert any("missing; kind eagle3 needs the folder or hub id" in problem for problem in found)


def test_what_a_base_sets_can_be_taken_back_as_the_message_says(tmp_path: Path) -> None:
    """A key of a shipped base is not for the operator to leave out; null in the profile is, and works."""
    head = "base: b200x8-llama4-maverick-latency\nname: x\n"
    file = tmp_path / "x.yaml"
    file.write_text(head + "speculation: {kind: ngram, draft_tokens: 2}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))
    assert [f"; it is inherited: {file} may set it otherwise, or to null for none"] == [
        problem.partition("leave it out")[2] for problem in caught.value.problems
    ]
    file.write_text(head + "speculation: {kind: ngram, draft_tokens: 2, draft_checkpoint: null}\n")
    assert "ngram" == getattr(load_profile(str(file)).profile.speculation, "kind", None)


def test_what_chooses_for_itself_or_is_built_in_has_no_draft_gate(tmp_path: Path) -> None:
    """AUTO ignores every field, and engines have no gate: both halves of it are refused."""
    gate = "draft_tokens: 3, acceptance_threshold: 0.6, acceptance_window: 8}\n"
    kinds = "eagle3, mtp, ngram, draft_target, pard and sa"
    for kind in ("auto", "medusa"):
        assert [
            f"speculation.{key}: has no meaning with kind {kind}, only with {kinds}; leave it out"
            for key in ("acceptance_threshold", "acceptance_window")
        ] == problems(tmp_path, f"speculation: {{kind: {kind}, {gate}")


def test_half_a_draft_gate_is_refused(tmp_path: Path) -> None:
    """A window without a threshold does nothing, and a threshold needs one."""
    found = problems(tmp_path, "speculation: {kind: mtp, draft_tokens: 1, acceptance_window: 8}\n")
    assert ["speculation.acceptance_window: has no meaning without acceptance_threshold; leave it out"] == found


def test_an_unknown_kind_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    """The kind is checked before the keys that depend on it."""
    found = problems(tmp_path, "speculation: {kind: eagle2, draft_tokens: 1}\n")
    allowed = "eagle3, mtp, ngram, draft_target, pard, sa, auto, medusa, eagle, redrafter, lookahead"
    assert [f"speculation.kind: found eagle2 (text); allowed one of {allowed}; did you mean eagle?"] == found


def test_without_the_section_nothing_drafts_and_a_null_takes_it_back(tmp_path: Path) -> None:
    """A profile that inherits speculation can switch it off."""
    base = tmp_path / "base.yaml"
    base.write_text(HEAD + "speculation: {kind: ngram, draft_tokens: 3}\n")
    above = tmp_path / "above.yaml"
    above.write_text("base: base.yaml\nname: above\nspeculation: null\n")
    assert "ngram" == getattr(load_profile(str(base)).profile.speculation, "kind", None)
    assert load_profile(str(above)).profile.speculation is None


@pytest.mark.parametrize("section", [Speculation, Engine])
def test_every_key_says_what_it_does_and_what_it_costs(section: type[Speculation] | type[Engine]) -> None:
    """A description is at least a sentence; all but the kind itself name a cost."""
    for name, field in section.model_fields.items():
        text = field.description or ""
        assert text.endswith("."), name
        assert name in ("kind", "allreduce_strategy") or "cost" in text, name
