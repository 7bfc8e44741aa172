"""Corrections from a deployment: what is learned, and how errors are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.specs import llama_8b
from tests.support.token_server import token_server
from trtllm_kit.bench.client import address_of
from trtllm_kit.bench.run import Server
from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import subject_of
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
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


def served_at(url: str) -> Server:
    """Return a server of Triton's llmapi model."""
    return Server(address_of(url), "triton", "tensorrt_llm", silence=10)


def test_times_are_means_over_what_is_counted() -> None:
    """Each user asks ROUNDS times, with prompts of its own; no first token counts that came before it was written."""
    with token_server(first=0.2, gap=0.05) as (url, asked):
        found = measure(served_at(url), 2, 20, 8)
    assert found.ttft >= 0.2
    assert (2, True) == (found.concurrency, 0 < found.tpot < found.ttft)
    assert 2 * ROUNDS == len({one["text_input"] for one in asked})


def test_a_request_that_fails_ends_the_measurement() -> None:
    """Half a measurement is none: what failed is raised, with the server's own word for it."""
    failed = pytest.raises(RequestFailed, match=r"2 of 6 requests failed\n.*503")
    with token_server(fault="busy", every=3) as (url, _), failed:
        measure(served_at(url), 2, 8, 4)


def test_answers_of_one_piece_tell_no_time_between_tokens() -> None:
    """A server that streams nothing cannot be measured so, and that is said."""
    with token_server() as (url, _), pytest.raises(RequestFailed, match="two tokens at two times"):
        measure(served_at(url), 1, 8, 1)


def test_a_client_that_was_late_is_told_of() -> None:
    """A doubt about the client's own times goes with the comparison, under the load that it belongs to."""
    pairs = [(Times(1, 1.0, 0.01), Times(1, 1.0, 0.01)), (Times(8, 1.0, 0.01), Times(8, 1.0, 0.01, "late"))]
    assert ("at 8: late",) == compare(pairs, lambda _, place: pairs[place][0]).doubts


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

    learned = learn(asked(), lambda load, _prompt, _answer: real[load], loads)
    assert learned.tpot_after < 0.05 < learned.tpot_before
    assert 1.7 == pytest.approx(learned.correction.generation, rel=0.05)
    slower = tune(replace(asked(), question=replace(QUESTION, concurrency=4)), learned.correction)
    faster = tune(replace(asked(), question=replace(QUESTION, concurrency=4)))
    assert slower.winner is not None
    assert faster.winner is not None
    assert slower.winner.point.tokens_per_s < faster.winner.point.tokens_per_s
