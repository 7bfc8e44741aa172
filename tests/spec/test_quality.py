"""What a conversion may lose, as a profile and as the command line write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ProfileError, UsageError
from trtllm_kit.spec.load import load_profile, with_calibration
from trtllm_kit.spec.quality import Quality, asks, is_jsonl, with_gate

HEAD = "base: cpu-rehearsal-smollm2\nname: mine\n"


def loaded(tmp_path: Path, text: str) -> Quality:
    """Return the section of a profile that ends in this text."""
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + text)
    return load_profile(str(file)).profile.quality


def test_a_profile_writes_shares_in_percent_or_of_one(tmp_path: Path) -> None:
    """0.5 % is 0.005, 99 % is 0.99; what is left out asks nothing."""
    section = "quality: {perplexity: 0.5%, top1_agreement: 0.99, kl_divergence: 0.01, logit_cosine: 99.9%}\n"
    assert Quality(perplexity=0.005, top1_agreement=0.99, kl_divergence=0.01, logit_cosine=0.999) == loaded(
        tmp_path, section
    )
    assert Quality() == loaded(tmp_path, "")
    assert not asks(loaded(tmp_path, ""))


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ("quality: {top1_agreement: 99}", "quality.top1_agreement"),
        ("quality: {logit_cosine: 101%}", "quality.logit_cosine"),
        ("quality: {perplexity: -1%}", "quality.perplexity"),
        ("quality: {perplexity: 5ms}", "quality.perplexity"),
        ("quality: {kl_divergence: -0.1}", "quality.kl_divergence"),
        ("quality: {perplexty: 1%}", "perplexity"),
    ],
)
def test_a_limit_that_has_no_meaning_is_a_problem_of_the_profile(tmp_path: Path, section: str, named: str) -> None:
    """Told with its file and line: 99 without a percent sign would let nothing pass, or everything."""
    with pytest.raises(ProfileError) as caught:
        loaded(tmp_path, section + "\n")
    assert 1 == len(caught.value.problems)
    assert "mine.yaml:3" in caught.value.problems[0]
    assert named in caught.value.problems[0]


def test_the_command_line_goes_over_the_profile() -> None:
    """What it names is replaced, the rest stays."""
    asked = Quality(perplexity=0.01, kl_divergence=0.5)
    assert Quality(perplexity=0.005, top1_agreement=0.99, kl_divergence=0.5) == with_gate(asked, "ppl=0.5%, top1=99%")
    assert Quality(kl_divergence=0.01, logit_cosine=0.999) == with_gate(Quality(), "kl=0.01,cosine=0.999")


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("", "'' is no limit; write ppl=VALUE, top1=VALUE, kl=VALUE, cosine=VALUE"),
        ("ppl", "'ppl' is no limit"),
        ("perplexity=1%", "'perplexity=1%' is no limit"),
        ("ppl=1%,ppl=2%", "ppl stands twice"),
        ("ppl=", "ppl: '' is not a number with a unit"),
        ("ppl=nan", "ppl: 'nan'"),
        ("kl=3s", "kl: unknown unit 's' of a share"),
        ("top1=99", "top1: input should be less than or equal to 1"),
    ],
)
def test_a_gate_that_is_not_understood_says_what_it_takes(gate: str, said: str) -> None:
    """Every way to mistype it has one answer."""
    with pytest.raises(ValueError, match=r".") as caught:
        with_gate(Quality(), gate)
    assert said in str(caught.value)


@given(share=st.floats(0, 1))
def test_percent_and_share_are_one_value(share: float) -> None:
    """Written either way it is the same limit."""
    written = with_gate(Quality(), f"top1={share * 100:.12f}%").top1_agreement
    assert share == pytest.approx(written, abs=1e-12)


def test_calibration_for_one_run_goes_over_the_profile(tmp_path: Path) -> None:
    """It is known which keys were set so, and the new text by its hash; a value out of range is a usage error."""
    (tmp_path / "mine.jsonl").write_text('{"text": "a"}\n')
    before = load_profile("cpu-rehearsal-smollm2")
    after = with_calibration(before, {"text": str(tmp_path / "mine.jsonl"), "samples": 3})
    assert ("samples", "text") == after.for_one_run
    assert 3 == after.profile.calibration.samples
    assert before.profile.calibration.tokens_per_sample == after.profile.calibration.tokens_per_sample
    assert after.calibration_sha256 is not None
    with pytest.raises(UsageError, match=r"calibration\.samples cannot be 0"):
        with_calibration(before, {"samples": 0})


@pytest.mark.parametrize(
    ("name", "records"), [("a.jsonl", True), ("a.NDJSON", True), ("a.json", False), ("jsonl", False), (None, False)]
)
def test_a_file_of_records_is_known_by_its_name(name: str | None, records: bool) -> None:
    """So that a plan knows it without opening the file."""
    assert records == is_jsonl(name)


def test_a_field_belongs_to_a_file_of_records(tmp_path: Path) -> None:
    """A profile that names one beside plain text is refused; another text for one run does not inherit it."""
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + "calibration: {text: mine.txt, field: note}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))
    assert "calibration.field" in caught.value.problems[0]
    file.write_text(HEAD + "calibration: {text: mine.jsonl, field: note}\n")
    own = load_profile(str(file))
    assert "note" == own.profile.calibration.field
    assert with_calibration(own, {"text": "other.txt"}).profile.calibration.field is None
    assert "note" == with_calibration(own, {"samples": 3}).profile.calibration.field
