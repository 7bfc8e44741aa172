"""From a search to a plan that holds, and the profile that asks for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.specs import llama, llama_8b, llama_70b, llama_405b
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import hardware_for, hardware_names, load_hardware, load_profile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.tune.candidates import shapes
from trtllm_kit.tune.decision import Decision, decide, plan_of, runners_up
from trtllm_kit.tune.html import html_page
from trtllm_kit.tune.power import at_power
from trtllm_kit.tune.question import Objective, Question
from trtllm_kit.tune.report import document
from trtllm_kit.tune.room import Asked
from trtllm_kit.tune.run import estimate_of, estimate_plan
from trtllm_kit.tune.search import Search
from trtllm_kit.tune.stopped import by_constraint, rows
from trtllm_kit.tune.written import based_on, name_of, profile_text

SMALL = "h200x1-llama3.1-8b-fp8"


def decided(model: ModelSpec, name: str, question: Question, machines: tuple[str, ...] = ()) -> Decision:
    """Tune a model under a shipped profile, with a tenth of the usual simulations."""
    loaded = load_profile(name)
    found = [load_hardware(machine) for machine in machines] or [hardware_for(loaded.profile)]
    search = Search(
        Asked(model, loaded, {machine.name: machine for machine in found}, question),
        StepClock,
        most_simulated=20,
        finalists=6,
    )
    search.run(shapes(model, loaded.profile, "unified_hf", found, question))
    return decide(search)


def small(**changes: Any) -> Decision:
    """Tune 8B on one H200."""
    return decided(llama_8b(), SMALL, Question(512, 128, **({"concurrency": 16} | changes)))


def test_the_winner_is_written_as_a_profile_and_the_estimate_is_of_exactly_that(tmp_path: Path) -> None:
    """The file is read by ``plan`` as what was decided, digest and all, and its estimate is the one that was shown."""
    decision = small()
    winner = decision.winner
    assert winner is not None
    target = tmp_path / "Tuned for chat.yaml"
    loaded = decision.asked.loaded.profile
    target.write_text(profile_text(SMALL, loaded, winner.changes, target, ["found"]), encoding="utf-8")
    read = load_profile(str(target))
    assert "tuned-for-chat" == read.profile.name
    plan = make_plan(llama_8b(), read, hardware_for(read.profile))
    decisions = {key: decision.value for key, decision in plan.decisions()}
    assert {key: decision.value for key, decision in winner.plan.decisions()} == decisions
    assert not errors(plan.findings)
    question = decision.search.question
    again = estimate_plan(plan, hardware_for(read.profile), question, winner.point.concurrency)
    assert estimate_of(decision, winner).figures == again.figures


@pytest.mark.parametrize(
    ("key", "said"), [("limits.max_beam_width", "one beam is timed"), ("engine.stream_interval", "4 tokens at a time")]
)
def test_an_estimate_says_which_settings_it_does_not_time(key: str, said: str) -> None:
    """Beams and pieces of several tokens change what a client sees, and are in no figure: a note says so."""
    loaded, question = load_profile(SMALL), Question(512, 128)
    machine = hardware_for(loaded.profile)
    notes = [
        " ".join(
            estimate_plan(make_plan(llama_8b(), with_changes(loaded, changes), machine), machine, question, 1).notes
        )
        for changes in ({}, {key: 4})
    ]
    assert [False, True] == [said in text for text in notes]


def test_the_estimate_is_the_simulation_that_the_winner_was_chosen_by() -> None:
    """What the search saw of the winner at length is what the report says of it."""
    decision = small()
    assert decision.winner is not None
    estimate, seen = estimate_of(decision, decision.winner), decision.winner.point.seen
    assert seen.ttft.mean == pytest.approx(estimate.figure("first token, mean").value, rel=0.02)
    assert seen.tpot.mean == pytest.approx(estimate.figure("later token, mean").value, rel=0.02)
    tokens = decision.winner.point.tokens_per_s
    assert tokens == pytest.approx(estimate.figure("output tokens").value, rel=0.02)


def test_a_promise_that_nothing_keeps_names_the_nearest_and_what_is_in_the_way() -> None:
    """No step of 8B takes a tenth of a millisecond: there is no winner, a nearest one, and both numbers."""
    decision = small(slo=Slo(tpot=1e-4))
    assert decision.winner is None
    assert decision.nearest is not None
    assert "tpot" in decision.blocking
    assert "promised" in decision.blocking


def test_a_model_that_fits_nowhere_says_what_it_needs() -> None:
    """405B on one H200: every shape is stopped by memory, and that is what is said."""
    decision = decided(llama_405b(), SMALL, Question(512, 128, concurrency=1))
    assert (None, None) == (decision.winner, decision.nearest)
    assert "140.40 GiB" in decision.blocking
    assert ["memory"] == [one.name for one in by_constraint(decision.search.stopped)]


def test_every_configuration_that_is_out_can_be_listed() -> None:
    """One row each, with its constraint and the numbers compared."""
    decision = small()
    listed = list(rows(decision.search.stopped))
    assert len(decision.search.stopped) == len(listed)
    assert all(row[-3] and row[-1] for row in listed)


def test_70b_takes_two_h100_and_one_h200() -> None:
    """For the least cost with first tokens in a second: an H100 has cache for 21 of 32 requests, an H200 for all."""
    model = llama(80, 8192, 64, 8, 28672, vocab=32000, max_position=4096)
    question = Question(2048, 1024, concurrency=32, objective="cost", slo=Slo(ttft=1.0))
    on_h100 = decided(model, "h100x2-llama2-70b-fp8", question).winner
    on_h200 = decided(model, "h100x2-llama2-70b-fp8", question, ("h200x8-700w",)).winner
    assert on_h100 is not None
    assert on_h200 is not None
    assert (2, 1) == (on_h100.point.candidate.shape.tensor, on_h200.point.candidate.shape.tensor)


@pytest.mark.parametrize(("objective", "watts"), [("throughput", 1000.0), ("energy", 700.0)])
def test_power_buys_speed_and_costs_energy(objective: Objective, watts: float) -> None:
    """Of the two published limits the larger answers more, and the smaller answers more for each watt."""
    loaded = load_profile("h200x8-offline")
    machine, all_of = hardware_for(loaded.profile), [load_hardware(name) for name in hardware_names()]
    variants = {one.name: one for one in (at_power(machine, limit, all_of) for limit in (700.0, 1000.0))}
    question = Question(1024, 64, concurrency=512, objective=objective, weights=("fp8",))
    search = Search(Asked(llama_70b(), loaded, variants, question), StepClock, most_simulated=8, finalists=4)
    search.run(
        [
            one
            for one in shapes(llama_70b(), loaded.profile, "unified_hf", variants.values(), question)
            if one.ranks == 1
        ]
    )
    winner = decide(search).winner
    assert winner is not None
    assert (watts, f"h200x8-700w@{watts:g}W") == (winner.point.watts, winner.point.candidate.shape.machine)
    assert "h200x8-700w" == winner.loaded.profile.hardware


def test_runners_up_are_other_shapes_in_the_order_of_their_worth() -> None:
    """No runner-up has the winner's shape, none comes twice, and none is better than the one before."""
    decision = small()
    assert decision.winner is not None
    others = runners_up(decision, 8)
    kinds = [(point.candidate.shape, point.candidate.replicas) for point in others]
    assert len(set(kinds)) == len(kinds)
    assert (decision.winner.point.candidate.shape, 1) not in kinds
    tokens = [point.tokens_per_s for point in others]
    assert sorted(tokens, reverse=True) == tokens


def test_what_the_plan_of_the_winner_warns_of_is_told() -> None:
    """Two ranks over PCIe may win; the report says what the plan says of them, and so does the page."""
    decision = decided(llama_8b(), "l40s-cluster", Question(512, 64, concurrency=8, weights=("fp8",)), ("l40sx8",))
    point = next(one for one in decision.search.points if one.candidate.shape.tensor == 2)
    found = document(replace(decision, winner=plan_of(decision.asked, point)), None)
    assert ["PF20"] == [one["rule"] for one in found["winner"]["warnings"]]
    assert "over PCIe" in html_page(found)


@pytest.mark.parametrize(
    ("base", "expected"),
    [("h200x8-offline", "h200x8-offline"), ("own/base.yaml", "own/base.yaml"), ("base.yaml", "base.yaml")],
)
def test_a_base_is_named_as_the_new_file_sees_it(
    base: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shipped name stays; a path is written relative to the new file, wherever the verb ran."""
    monkeypatch.chdir(tmp_path)
    assert expected == based_on(base, Path("new.yaml"))
    assert base not in ("own/base.yaml",) or "base.yaml" == based_on(base, Path("own/new.yaml"))


def test_a_profile_is_named_for_its_file() -> None:
    """Letters that a name cannot have become dashes; a file without any keeps the profile's own name."""
    assert ("my-70b", "other-tuned") == (name_of(Path("/x/My 70B.yaml"), "a"), name_of(Path("/x/___.yaml"), "other"))
