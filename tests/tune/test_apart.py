"""Prompts on some replicas of a plan, answers on the others: figures, what binds, what is refused."""

from __future__ import annotations

import pytest

from tests.support.specs import llama_70b
from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.answer import Estimate
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.load import hardware_for, load_profile
from trtllm_kit.tune.apart import LINKS, PLACES, PROMPTS, SENT, estimate_apart
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.run import estimate_plan

MACHINE = hardware_for(load_profile("h200x8-offline").profile)
QUESTION = Question(2048, 128, least_share=1.0)


def plan(replicas: int = 8) -> Plan:
    """Plan so many replicas of 70B of one GPU each."""
    loaded = with_changes(load_profile("h200x8-offline"), {"parallelism.replicas": replicas})
    return make_plan(llama_70b(), loaded, MACHINE)


def slow(bytes_per_second: float) -> Hardware:
    """Return eight nodes of one GPU over a network of that speed."""
    network = Figure(value=bytes_per_second, source="a test")
    return MACHINE.model_copy(
        update={"gpus_per_node": 1, "nodes": 8, "nvlink_domain": 1, "network_bytes_per_second": network}
    )


def value(found: Estimate, name: str) -> float:
    """Return a figure's value."""
    return found.figure(name).value


def test_a_first_token_waits_for_its_transfer() -> None:
    """One request alone: over a network its first token is later than over NVLink by what sending takes longer."""
    near, far = (estimate_apart(plan(), machine, QUESTION, 1, 4) for machine in (MACHINE, slow(1e9)))
    expected = value(far, SENT) - value(near, SENT)
    assert expected > 0.1
    assert expected == pytest.approx(value(far, "first token, mean") - value(near, "first token, mean"), rel=1e-6)


def test_answers_run_without_prompts_between_them() -> None:
    """Under load the longest gap is that of generation alone, and with all work on each replica a prompt's step."""
    apart, together = estimate_apart(plan(), MACHINE, QUESTION, 64, 4), estimate_plan(plan(), MACHINE, QUESTION, 64)
    gap = "longest gap of a request, p95"
    assert value(together, gap) > 5 * value(apart, gap)


def test_tokens_are_those_of_all_gpus() -> None:
    """The rate of each GPU times all of them, readers too, is the rate of all."""
    found = estimate_apart(plan(), MACHINE, QUESTION, 64, 3)
    assert value(found, "output tokens") == pytest.approx(8 * value(found, "of each GPU"))


def test_users_who_wait_obey_littles_law() -> None:
    """As many answers are under way as users wait: their rate times the time of one."""
    found = estimate_apart(plan(), MACHINE, QUESTION, 48, 3)
    assert 48 == pytest.approx(value(found, "answers") * value(found, "whole answer, mean"))


def test_what_reads_prompts_is_told_when_it_is_full() -> None:
    """One reader for seven that answer is at work all the time, and a note says so; seven for one are not."""
    few, many = (estimate_apart(plan(), MACHINE, QUESTION, 64, readers) for readers in (1, 7))
    assert value(few, PROMPTS) > 0.95
    assert any(PROMPTS in note and "waits" in note for note in few.notes)
    assert value(many, PROMPTS) < 0.8
    assert not any("waits" in note for note in many.notes)
    assert value(many, PLACES) > value(few, PLACES)


def test_a_network_that_is_too_slow_binds() -> None:
    """At 0.1 GB/s a GPU sending takes most of the time: it is what binds, and its links are full."""
    found = estimate_apart(plan(), slow(1e8), QUESTION, 32, 4)
    assert "KV transfer" == found.binds
    assert value(found, LINKS) > 0.9


def test_answers_of_one_token_send_nothing() -> None:
    """They end where the prompt was read: there is no figure of sending, and no part of the time."""
    found = estimate_apart(plan(), MACHINE, Question(2048, 1), 8, 4)
    assert SENT not in [figure.name for figure in found.figures]
    assert "KV transfer" not in [part.name for part in found.parts]


def test_arrivals_that_are_kept_up_with_are_the_rate() -> None:
    """At two requests a second in all, answers leave at two a second."""
    found = estimate_apart(plan(), MACHINE, Question(2048, 128, rate=2.0), 8, 4)
    assert (2.0, 2.0, 2.0) == (value(found, "answers"), found.figure("answers").low, found.figure("answers").high)


@pytest.mark.parametrize(
    ("replicas", "readers", "why", "hint"),
    [
        (8, 8, "9 servers of 1 GPU take 9; h200x8-700w has 8", "--prompt-servers 7, or fewer"),
        (1, 1, "2 servers of 1 GPU take 2; h200x8-700w has 8", "a profile with parallelism.replicas: 2"),
        (1, 8, "9 servers of 1 GPU take 9; h200x8-700w has 8", "a profile for hardware with 9 GPUs or more"),
    ],
)
def test_without_a_server_that_answers_it_is_refused(replicas: int, readers: int, why: str, hint: str) -> None:
    """The refusal counts the GPUs that are needed and there, and names what would do."""
    with pytest.raises(UsageError, match="leave none that answers") as error:
        estimate_apart(plan(replicas), MACHINE, QUESTION, 8, readers)
    assert (why, True) == (error.value.why, error.value.hint.startswith(hint))
