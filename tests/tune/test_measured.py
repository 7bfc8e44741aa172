"""Corrections from a deployment: what is learned, and how errors are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.specs import llama_8b
from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import subject_of
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.serve.client import Piece
from trtllm_kit.spec.load import hardware_for, load_profile
from trtllm_kit.tune.corrected import CorrectedClock, Correction
from trtllm_kit.tune.measured import ROUNDS, Times, compare, correction_of, measure
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked
from trtllm_kit.tune.run import estimate_plan, learn, tune

PROFILE = "h200x1-llama3.1-8b-fp8"
QUESTION = Question(256, 32, least_share=1.0)


def asked() -> Asked:
    """Ask for 8B on one H200."""
    loaded = load_profile(PROFILE)
    machine = hardware_for(loaded.profile)
    return Asked(llama_8b(), loaded, {machine.name: machine}, QUESTION)


def plan() -> Plan:
    """Plan it."""
    what = asked()
    return make_plan(what.model, what.loaded, next(iter(what.machines.values())))


def answer(first: float, later: float, tokens: int) -> Iterator[Piece]:
    """Stream an answer whose pieces come at given times."""
    for place in range(tokens):
        yield Piece("x", first + place * later, "length" if place == tokens - 1 else "")


def test_times_are_means_over_what_is_counted() -> None:
    """Each place asks ROUNDS times with prompts of its own; its first request counts in no figure."""
    prompts: list[str] = []

    def ask(prompt: str, tokens: int) -> Iterator[Piece]:
        prompts.append(prompt)
        return answer(9.0 if prompt.split()[2] == "0" else 0.5, 0.01, tokens)

    assert Times(4, pytest.approx(0.5), pytest.approx(0.01)) == measure(ask, 4, 20, 8)  # type: ignore[arg-type]
    assert 4 * ROUNDS == len(set(prompts))


def test_a_request_that_fails_ends_the_measurement() -> None:
    """Half a measurement is none: the first failure is raised."""

    def ask(prompt: str, tokens: int) -> Iterator[Piece]:
        raise RequestFailed("no", why="it is down", hint="start it")

    with pytest.raises(RequestFailed, match="no"):
        measure(ask, 2, 8, 8)


def test_answers_of_one_piece_tell_no_time_between_tokens() -> None:
    """A server that streams nothing cannot be measured so, and that is said."""
    with pytest.raises(RequestFailed, match="two tokens"):
        measure(lambda prompt, tokens: answer(0.1, 0.1, 1), 1, 8, 8)


def test_factors_are_geometric_means_and_ignore_times_of_nothing() -> None:
    """Twice and half as long are no correction together; a predicted time of 0 has no ratio."""
    pairs = [(Times(1, 1.0, 0.0), Times(1, 2.0, 1.0)), (Times(2, 1.0, 0.02), Times(2, 0.5, 0.06))]
    found = correction_of(pairs)
    assert (pytest.approx(1.0), pytest.approx(3.0)) == (found.prompt, found.generation)


def test_the_error_after_is_that_of_loads_that_were_not_learned_from() -> None:
    """Of loads that are all off by the same factor none is left; of one load alone nothing is claimed."""

    def again(correction: Correction, place: int) -> Times:
        return Times(place, 1.0 * correction.prompt, 0.01 * correction.generation)

    pairs = [(again(Correction(), place), Times(place, 1.5, 0.02)) for place in range(3)]
    found = compare(pairs, again)
    assert (pytest.approx(1 / 3), pytest.approx(0.5)) == (found.ttft_before, found.tpot_before)
    assert (pytest.approx(0.0), pytest.approx(0.0)) == (found.ttft_after, found.tpot_after)
    alone = compare(pairs[:1], again)
    assert (alone.ttft_before, alone.tpot_before) == (alone.ttft_after, alone.tpot_after)


def test_a_corrected_clock_scales_each_kind_of_step() -> None:
    """Steps with a prompt and without take their own factor, in runs and in every explained term."""
    machine = next(iter(asked().machines.values()))
    subject = subject_of(plan(), machine)
    plain, clock = StepClock(subject), CorrectedClock(subject, Correction(1.5, 2.0))
    mixed, generation = StepWork((Chunk(128),), 4, 1000), StepWork((), 4, 1000)
    assert 1.5 * plain.seconds(mixed) == pytest.approx(clock.seconds(mixed))
    assert 2.0 * plain.decode_run(4, 1000, 50) == pytest.approx(clock.decode_run(4, 1000, 50))
    explained, before = clock.explain(generation), plain.explain(generation)
    assert clock.seconds(generation) == pytest.approx(explained.seconds)
    assert [2.0 * term.seconds for term in before.terms] == [pytest.approx(term.seconds) for term in explained.terms]


def test_a_deployment_that_is_slower_by_a_factor_is_predicted_right_afterwards() -> None:
    """Measurements made by the same engine with steps of 1.4 and 1.7 times the time are learned to a few percent."""
    machine = next(iter(asked().machines.values()))
    loads = [1, 8]
    real: dict[int, Times] = {}
    for load in loads:
        found = estimate_plan(plan(), machine, QUESTION, load, Correction(1.4, 1.7))
        first, later = (found.figure(name).value for name in ("first token, mean", "later token, mean"))
        real[load] = Times(load, first, later)

    def ask(prompt: str, tokens: int) -> Iterator[Piece]:
        times = real[int(prompt.split()[0])]
        return answer(times.ttft, times.tpot, tokens)

    learned = learn(asked(), ask, loads)
    assert learned.tpot_after < 0.05 < learned.tpot_before
    assert 1.7 == pytest.approx(learned.correction.generation, rel=0.05)
    slower = tune(replace(asked(), question=replace(QUESTION, concurrency=4)), learned.correction)
    faster = tune(replace(asked(), question=replace(QUESTION, concurrency=4)))
    assert slower.winner is not None
    assert faster.winner is not None
    assert slower.winner.point.tokens_per_s < faster.winner.point.tokens_per_s
