"""Context parallelism in an estimate: what it takes from prompts, what it adds, and what generation gets of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.replicas import replica
from tests.support.specs import gemma3_27b, llama_8b, llama_405b, profile
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import subject_of
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec

RACK, NODE = load_hardware("gh200-nvl32"), load_hardware("h200x8-700w")
STEP, MILLION = 16_384, 1 << 20
FP8 = Formats("fp8", "fp8")


def clock(model: ModelSpec, split: Split, machine: Hardware = NODE) -> StepClock:
    """Return a clock of engines in FP8."""
    return StepClock(replica(model=model, hardware=machine, split=split, formats=FP8, backend="tensorrt"))


def prompt_s(timed: StepClock, tokens: int) -> float:
    """Return the seconds of a prompt in chunks of a step each."""
    return sum(timed.seconds(StepWork((Chunk(STEP, past),))) for past in range(0, tokens, STEP))


def seconds_of(timed: StepClock, work: StepWork) -> dict[str, float]:
    """Return the terms of a step."""
    return {term.name: term.seconds for term in timed.explain(work).terms}


@pytest.mark.parametrize("fewer", [Split(8), Split(8, pipeline=4)])
def test_a_prompt_of_a_million_tokens_is_read_sooner_by_ranks_that_each_take_a_part(fewer: Split) -> None:
    """405B on a rack of 32: eight tensor ranks with four context ranks against eight alone, and against four stages."""
    parts = prompt_s(clock(llama_405b(), Split(8, context=4), RACK), MILLION)
    assert parts < prompt_s(clock(llama_405b(), fewer, RACK), MILLION) / 3


def test_less_is_reduced_than_among_as_many_tensor_ranks() -> None:
    """Each rank reduces a quarter of the tokens, and what is exchanged for it is less."""
    work = StepWork((Chunk(STEP),))
    parts, tensor = (seconds_of(clock(llama_405b(), one, RACK), work) for one in (Split(8, context=4), Split(32)))
    assert parts["collectives"] < tensor["collectives"]
    assert parts["prompt attention"] == pytest.approx(tensor["prompt attention"])


def test_rows_are_shared_out_and_weights_are_not() -> None:
    """A long prompt's products take half of the time on two context ranks; one token's read the same weights."""
    one, two = clock(llama_8b(), Split()), clock(llama_8b(), Split(context=2))
    long, short = StepWork((Chunk(STEP),)), StepWork(sequences=1, context=100)
    assert seconds_of(one, long)["products"] == pytest.approx(2 * seconds_of(two, long)["products"], rel=0.02)
    assert seconds_of(one, short)["products"] == seconds_of(two, short)["products"]


def test_a_generating_sequence_reads_its_share_of_heads() -> None:
    """Generation attention takes half of the time where two ranks have half of the KV heads each."""
    work = StepWork(sequences=1, context=100_000)
    one, two = (seconds_of(clock(llama_8b(), split), work) for split in (Split(), Split(context=2)))
    assert one["generation attention"] == pytest.approx(2 * two["generation attention"])


def test_nobody_measured_the_exchange() -> None:
    """So its source is the roofline, and without context ranks it is what was fitted."""
    work = StepWork((Chunk(STEP),))
    for split, source in ((Split(2, context=2), "roofline"), (Split(4), "fitted")):
        terms = clock(llama_8b(), split).explain(work).terms
        assert source == next(term.source for term in terms if term.name == "collectives")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["llama", "gemma"]), st.integers(1, 100), st.integers(1, 9000), st.integers(1, 200))
def test_a_run_is_the_sum_of_its_steps(name: str, sequences: int, each: int, steps: int) -> None:
    """In closed form too, with windows and without."""
    model = {"llama": llama_8b(), "gemma": gemma3_27b()}[name]
    timed, context = clock(model, Split(2, context=4)), sequences * each
    single = sum(timed.seconds(StepWork((), sequences, context + sequences * step)) for step in range(steps))
    assert single == pytest.approx(timed.decode_run(sequences, context, steps), rel=1e-3)


def test_a_subject_has_the_context_ranks_of_its_plan() -> None:
    """And a cache that is larger by as much as a token takes less of a rank."""
    asked = {"toolchain": "trtllm-build", "trtllm_version": "1.1.0", "parallelism.tensor": 2, "parallelism.context": 4}
    found = subject_of(make_plan(llama_8b(), profile(asked), NODE), NODE)
    whole = subject_of(make_plan(llama_8b(), profile(asked | {"parallelism.context": 1}), NODE), NODE)
    assert (4, 8, "tensorrt") == (found.split.context, found.split.world_size, found.backend)
    assert 3.9 * whole.kv_tokens < found.kv_tokens < 4.1 * whole.kv_tokens
