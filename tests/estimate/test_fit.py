"""Fitting constants: it finds what made the figures, and writes them where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fit import Fitted, Item, fit, free_constants, known_with, settings
from benchmarks.fit_file import number, rewritten
from benchmarks.recorded import Recorder, load_of
from tests.estimate.replicas import replica
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.shipped_yaml import parse_yaml
from trtllm_kit.spec.ceilings import CEILINGS
from trtllm_kit.spec.load import load_hardware

B200 = ("blackwell", "stream_share"), ("blackwell", "kernel_seconds")
TRUE = dict(zip(B200, (0.75, 5e-6), strict=True))


def subject(tensor: int) -> Subject:
    """Return Llama 70B in FP8 on B200."""
    return replica(hardware=load_hardware("dgx-b200"), split=Split(tensor), formats=Formats("fp8", "fp8"))


def item(tensor: int, work: StepWork) -> Item:
    """Return a step as it takes with the true constants."""
    one = subject(tensor)
    measured = StepClock(one, known_with(one, TRUE)).seconds(work)
    return Item("made up", one, 1.0, measured, lambda clock: clock.seconds(work))


def test_a_fit_finds_the_constants_that_made_the_figures() -> None:
    """Steps of one and eight ranks tell reading weights and gaps between kernels apart."""
    items = [item(tensor, StepWork(sequences=size, context=size * 500)) for tensor in (1, 8) for size in (1, 32)]
    found = fit(items, dict(zip(B200, (0.9, 2e-6), strict=True)), rounds=8).values
    assert {key: pytest.approx(value, rel=0.05) for key, value in TRUE.items()} == found


def test_constants_of_other_cards_leave_a_subject_alone() -> None:
    """A value of Hopper changes nothing on Blackwell."""
    other = known_with(subject(1), {("hopper", "stream_share"): 0.1})
    assert known_with(subject(1), {}).ceilings == other.ceilings
    assert 0.75 == known_with(subject(1), TRUE).ceilings.stream_share


def test_a_fit_moves_only_what_the_file_says_is_fitted() -> None:
    """What was measured on the card stays as it is."""
    free = free_constants()
    assert ("hopper", "product_share_8") not in free
    assert ("blackwell", "stream_share") in free


def test_the_file_gets_new_values_in_their_places(tmp_path: object) -> None:
    """One constant of one architecture changes, with its bounds, and nothing else of the document."""
    key = ("blackwell", "cache_share")
    before = parse_yaml(CEILINGS)
    text = rewritten(CEILINGS.read_text("utf-8"), Fitted({key: 0.71}, {key: 0.02}, 0.0), settings()["bounds"])
    path = tmp_path / "ceilings.yaml"  # type: ignore[operator]
    path.write_text(text, "utf-8")
    after = parse_yaml(path)
    changed = next(row for row in after["architectures"] if row["architecture"] == "blackwell")["constants"]
    assert (0.71, 0.69, 0.73) == tuple(changed["cache_share"][name] for name in ("value", "low", "high"))
    changed["cache_share"] = next(row for row in before["architectures"] if row["architecture"] == "blackwell")[
        "constants"
    ]["cache_share"]
    assert before == after


def test_numbers_are_spelt_as_yaml_reads_them() -> None:
    """An exponent needs a point before it and a sign."""
    assert ("2.0e-6", "0.5", "31.0", "1.5e+9") == tuple(map(number, (2e-6, 0.5, 31.0, 1.5e9)))


def test_a_recorded_load_takes_as_long_as_the_load() -> None:
    """A few steps stand for all of them, to the second where the batch never changes."""
    clock = StepClock(subject(2))
    recorder = Recorder(clock)
    took = sum(recorder.seconds(StepWork((Chunk(500),), 7, 7 * 400)) for _ in range(20))
    took += recorder.decode_run(8, 4000, 300)
    load = load_of(recorder)
    assert pytest.approx(took) == load.seconds(clock)
    faster = StepClock(replace(subject(2), split=Split(8)))
    assert load.seconds(faster) < load.seconds(clock)
