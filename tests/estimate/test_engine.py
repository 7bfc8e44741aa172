"""In-flight batching step by step, on clocks that are easy to add up."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tests.estimate.replicas import Even, Straight, drafting, engine_with, replica, steps
from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.run import Run
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.estimate.workload import Request, Segment


def ends(runs: list[Run]) -> dict[int, int]:
    """Return the step, from 1, after which each request had its last token."""
    return {job.number: place for place, run in enumerate(runs, start=1) for job in run.ended}


def test_one_request_by_hand() -> None:
    """Alone, the first token comes after the prompt's step and each other one a step later, on the clock's seconds."""
    engine = engine_with(Request(1000, 3), clock=Straight())
    job = engine._queue[0]
    steps(engine)
    prompt = 10e-3 + 1000 * 3e-5 + 1e-9 * 1000 * 500
    decode = [10e-3 + 1e-4 + 2e-8 * context for context in (1000, 1001)]
    assert (pytest.approx(prompt), pytest.approx(prompt + sum(decode))) == (job.first, job.last)


def test_answer_of_one_token() -> None:
    """An answer of one token ends with the prompt's step."""
    assert {0: 1} == ends(steps(engine_with(Request(10, 1))))


def test_prompts_join_running_answers() -> None:
    """A request that comes while another generates shares its steps: neither waits for the other's end."""
    engine = engine_with(Request(10, 10))
    steps(engine, 3)
    engine.submit(1, Request(10, 2), 2.5)
    assert {1: 2, 0: 7} == ends(steps(engine))


def test_slots_limit_the_batch() -> None:
    """With 2 slots the third request waits until one has ended."""
    engine = engine_with(*[Request(10, 4)] * 3, max_batch_size=2)
    assert {0: 4, 1: 4, 2: 8} == ends(steps(engine))


def test_tokens_limit_the_step() -> None:
    """With 100 tokens a step three prompts of 40 take two steps, in the order of arrival."""
    first = steps(engine_with(*[Request(40, 2)] * 3, max_num_tokens=100, chunked_prefill=False), 2)
    assert [[0, 1], [2]] == [[job.number for job in run.began] for run in first]
    assert [(2, 80), (1, 40)] == [(run.prompts, run.prompt_tokens) for run in first]


def test_generating_requests_come_first() -> None:
    """Generating requests take their tokens of a step before prompts do: 96 of 100 are left beside 4 of them."""
    engine = engine_with(*[Request(20, 9)] * 4, max_num_tokens=100)
    steps(engine, 1)
    engine.submit(4, Request(500, 2), 0.5)
    assert [96, 96, 96, 96, 96, 20] == [run.prompt_tokens for run in steps(engine, 6)]


def test_chunks_are_whole_blocks() -> None:
    """A prompt is cut at whole blocks of 32: 100 tokens a step leave 96, and the end is as long as it is."""
    runs = steps(engine_with(Request(250, 1), max_num_tokens=100))
    assert [96, 96, 58] == [run.prompt_tokens for run in runs]


def test_chunks_know_what_is_cached() -> None:
    """A later chunk attends to what is cached already: the clock is told."""
    seen: list[StepWork] = []

    class Listening(Even):
        def seconds(self, work: StepWork) -> float:
            seen.append(work)
            return 1.0

    steps(engine_with(Request(250, 1), max_num_tokens=100, clock=Listening()))
    assert [(96, 0), (96, 96), (58, 192)] == [(chunk.new, chunk.past) for work in seen for chunk in work.chunks]


def test_whole_prompts_without_chunking() -> None:
    """Without chunking a prompt that does not fit beside another waits for a step of its own."""
    runs = steps(engine_with(Request(60, 2), Request(60, 2), max_num_tokens=100, chunked_prefill=False), 2)
    assert [60, 60] == [run.prompt_tokens for run in runs]


def test_reserves_for_what_is_asked() -> None:
    """Without eviction blocks are reserved for max_tokens, not for what the answer turns out to be."""
    engine = engine_with(Request(32, 2, asked=96), Request(32, 2, asked=96), kv_tokens=128 + 64)
    steps(engine, 1)
    assert (1, 1, 4) == (engine.state().active, engine.state().queued, engine.state().kv_held)


def test_guaranteed_no_evict_never_pauses() -> None:
    """Without eviction nothing is paused: who has no blocks to the end waits."""
    runs = steps(engine_with(*[Request(32, 64)] * 4, kv_tokens=256))
    assert ({0: 64, 1: 64, 2: 128, 3: 128}, 0) == (ends(runs), sum(run.paused for run in runs))


def test_max_utilization_admits_more() -> None:
    """With pauses allowed all four run at once where the other policy runs two."""
    engine = engine_with(*[Request(30, 64)] * 4, kv_tokens=256, scheduler_policy="MAX_UTILIZATION")
    steps(engine, 1)
    assert 4 == engine.state().active


def test_max_utilization_pauses_the_last() -> None:
    """When blocks run out the request admitted last is paused, waits in front, and still gets its whole answer."""
    engine = engine_with(*[Request(30, 64)] * 3, kv_tokens=256, scheduler_policy="MAX_UTILIZATION")
    runs = steps(engine)
    jobs = {job.number: job for run in runs for job in run.ended}
    assert [False, False, True] == [jobs[number].pauses > 0 for number in range(3)]
    assert [64, 64, 64] == [jobs[number].told for number in range(3)]


def test_a_paused_request_computes_its_text_again() -> None:
    """After a pause the prompt to compute is the prompt and the answer so far."""
    engine = engine_with(*[Request(30, 64)] * 3, kv_tokens=256, scheduler_policy="MAX_UTILIZATION")
    runs = steps(engine)
    again = [run.prompt_tokens for run in runs[1:] if run.prompt_tokens]
    pause = next(place for place, run in enumerate(runs) if run.paused)
    assert [30 + pause] == again


def test_who_waits_after_a_pause() -> None:
    """Paused requests are counted while they wait, and no longer when one is cancelled."""
    engine = engine_with(*[Request(30, 64)] * 3, kv_tokens=256, scheduler_policy="MAX_UTILIZATION")
    while not engine.state().paused:
        engine.advance()
    counted = engine.state().paused
    engine.cancel(2)
    assert (1, 0) == (counted, engine.state().paused)


def test_a_pause_is_a_gap() -> None:
    """The longest gap of a paused request spans the pause; that of the others is a step."""
    engine = engine_with(*[Request(30, 64)] * 3, kv_tokens=256, scheduler_policy="MAX_UTILIZATION")
    jobs = {job.number: job for run in steps(engine) for job in run.ended}
    assert (1.0, True) == (jobs[0].gap, jobs[2].gap > 10)


def test_overlap_sees_arrivals_a_step_later() -> None:
    """With the overlap scheduler a request that comes in a step misses the next one too, which is put together."""
    found = []
    for overlap in (False, True):
        engine = engine_with(Request(10, 20), overlap_scheduler=overlap)
        steps(engine, 3)
        engine.submit(1, Request(10, 1), 2.5)
        found.append(ends(steps(engine, 4)))
    assert [{1: 1}, {1: 2}] == found


def test_an_idle_engine_does_not_wait() -> None:
    """A request that comes to an idle engine is read at once, with the overlap scheduler too."""
    engine = Engine(replica(overlap_scheduler=True), Even())
    engine.submit(0, Request(10, 1), 7.25)
    run = engine.advance()
    assert run is not None
    assert (7.25, 8.25) == (run.begin, run.end)


def test_overlap_frees_a_step_later() -> None:
    """With the overlap scheduler a slot is free a step after its request's last token."""
    found = []
    for overlap in (False, True):
        engine = engine_with(
            Request(10, 3), Request(10, 9), Request(10, 1), max_batch_size=2, overlap_scheduler=overlap
        )
        found.append(ends(steps(engine))[2])
    assert [4, 5] == found


def test_jumps_end_where_something_happens() -> None:
    """Without arrivals the steps of one batch are one run, up to the next last token."""
    engine = engine_with(Request(10, 50), Request(10, 100))
    runs = []
    while (run := engine.advance()) is not None:
        runs.append(run.steps)
    assert [1, 49, 50] == runs


def test_jumps_end_before_arrivals() -> None:
    """A run ends with the first step that begins at the time given, or later."""
    engine = engine_with(Request(10, 50))
    engine.advance()
    run = engine.advance(until=7.5)
    assert run is not None
    assert (7, 8.0) == (run.steps, run.end)


def test_jumps_take_the_clock_s_time() -> None:
    """A run of steps takes as long as the steps one by one, and ends at the same step before an arrival."""
    ends_at = []
    for most in (None, 1):
        engine = engine_with(*[Request(1000, 400)] * 8, clock=Straight())
        while engine.time < 3.0:
            engine.advance(until=3.0, most_steps=most)
        ends_at.append(engine.time)
    assert ends_at[0] == pytest.approx(ends_at[1], abs=1e-9)


def test_cancel_frees_everything() -> None:
    """Cancelled requests, waiting or active, leave no block behind, and the others go on."""
    engine = engine_with(*[Request(64, 50)] * 3, max_batch_size=2)
    steps(engine, 5)
    assert [True, True, False] == [engine.cancel(0), engine.cancel(2), engine.cancel(7)]
    assert {1: 45} == ends(steps(engine))
    assert 0 == engine.state().kv_held


def test_cancelled_numbers_are_gone() -> None:
    """A number that was cancelled is not cancelled twice."""
    engine = engine_with(Request(64, 50))
    assert [True, False] == [engine.cancel(0), engine.cancel(0)]


def test_tokens_so_far() -> None:
    """A server that paces a stream can ask how many tokens of each answer are out."""
    engine = engine_with(Request(10, 9), Request(10, 9), max_batch_size=1)
    steps(engine, 4)
    assert [4, 0] == [engine.emitted(0), engine.emitted(1)]


def test_state_counts() -> None:
    """The state says who reads, generates and waits, and what the cache holds."""
    engine = engine_with(Request(64, 9), Request(9000, 9), Request(10, 9), max_batch_size=2)
    steps(engine, 1)
    state = engine.state()
    assert (2, 1, 1, 1, 0) == (state.active, state.reading, state.generating, state.queued, state.paused)
    assert 64 + 8128 == state.kv_tokens


def test_nothing_to_do() -> None:
    """An engine without requests takes no step."""
    assert None is Engine(replica(), Even()).advance()


def test_reuse_skips_what_is_cached() -> None:
    """With block reuse the second prompt computes only what its beginning does not share."""
    shared = (Segment(7, 96),)
    engine = engine_with(Request(100, 1, shared=shared), block_reuse=True)
    steps(engine)
    engine.submit(1, Request(150, 1, shared=shared), 5.0)
    assert [54] == [run.prompt_tokens for run in steps(engine)]


def test_a_prompt_is_never_reused_whole() -> None:
    """Of a prompt that is cached whole its last block is computed again: the first token needs it."""
    shared = (Segment(7, 96),)
    engine = engine_with(Request(96, 1, shared=shared), block_reuse=True)
    steps(engine)
    engine.submit(1, Request(96, 1, shared=shared), 5.0)
    assert [32] == [run.prompt_tokens for run in steps(engine)]


def test_conversations_reuse_answers() -> None:
    """The next turn finds the answer of the turn before, but for its last token, which was never computed."""
    engine = engine_with(Request(64, 33, shared=(Segment(7, 64),), answer_key=8), block_reuse=True)
    steps(engine)
    engine.submit(1, Request(130, 1, shared=(Segment(7, 64), Segment(8, 33))), 99.0)
    assert [130 - 96] == [run.prompt_tokens for run in steps(engine)]


def test_drafts_that_are_always_taken() -> None:
    """With 3 drafts that are always taken 4 tokens come a step: 17 tokens take the prompt's step and 4 more."""
    assert {0: 5} == ends(steps(engine_with(Request(10, 17), speculation=drafting(1.0, 1.0, 1.0))))


def test_drafts_that_are_never_taken() -> None:
    """Drafts that are never taken bring nothing: 17 tokens take 17 steps."""
    assert {0: 17} == ends(steps(engine_with(Request(10, 17), speculation=drafting(0.0, 0.0))))


def test_drafts_by_chance_or_mean() -> None:
    """Drawn by a seed, many answers take as long as by the mean, to 2 %."""
    spans = []
    for seed in (None, 5):
        requests = [Request(10, 400)] * 64
        engine = engine_with(*requests, speculation=drafting(0.8, 0.6, 0.5), seed=seed)
        spans.append(sum(ends(steps(engine)).values()) / 64)
    assert spans[0] == pytest.approx(spans[1], rel=0.02)


def test_unknown_acceptance() -> None:
    """Speculation whose acceptance nobody gave is refused: any time would be a guess."""
    speculation = replace(drafting(0.5, 0.5), acceptance=())
    with pytest.raises(UsageError, match="2 draft tokens of kind eagle3 at an unknown acceptance"):
        Engine(replica(speculation=speculation), Even())


def test_handed_over_requests_need_no_prompt() -> None:
    """A request whose keys and values came from elsewhere has its first token at once, and reads nothing."""
    engine = Engine(replica(), Even())
    job = engine.submit(0, Request(500, 4), 2.0, cached=True)
    runs = steps(engine)
    assert (2.0, 3, 0) == (job.first, len(runs), sum(run.prompt_tokens for run in runs))


def test_a_paused_handed_over_request_reads_its_prompt() -> None:
    """What came from another server is lost with a pause: the prompt and the answer so far are computed here."""
    engine = Engine(replica(kv_tokens=256, scheduler_policy="MAX_UTILIZATION"), Even())
    for number in range(3):
        engine.submit(number, Request(30, 64), 0.0, cached=True)
    runs = steps(engine)
    read = [run.prompt_tokens for run in runs if run.prompt_tokens]
    pause = next(place for place, run in enumerate(runs) if run.paused)
    assert [30 + 1 + pause] == read


def test_never_the_only_one() -> None:
    """With pauses allowed the only request of a cache is never paused, up to the last block."""
    runs = steps(engine_with(Request(100, 28), kv_tokens=128, scheduler_policy="MAX_UTILIZATION"))
    assert (28, 0) == (len(runs), sum(run.paused for run in runs))


def test_times_before_they_happen() -> None:
    """A request that waits has no time of a first token yet."""
    assert inf == engine_with(Request(10, 5))._queue[0].first
