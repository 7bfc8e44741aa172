"""The engine of the estimate on a wall clock, without Triton."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ask import Ask, Refused
from faults import Faults
from pacer import Entry, Pacer
from runtime import Finish, Statistics
from sequence import TextTurn, Token, begin
from timing import Limits, simulated_engine

LIMITS = Limits(
    max_batch_size=2,
    max_num_tokens=8,
    max_seq_len=64,
    chunked_prefill=True,
    tokens_per_block=4,
    kv_blocks=10,
    max_queue_size=3,
)


class Counting:
    """A sequence of the letters a, b, c ...; its prompt is like no other's unless it is told what it says."""

    def __init__(self, prompt_tokens: int, ends_after: int = 99, held: str = "", said: str = "") -> None:
        self.prompt = tuple(f"{said or id(self)} {place}" for place in range(prompt_tokens))
        self.written = 0
        self._ends_after, self._held = ends_after, held

    def write(self) -> Token:
        """Return the next letter, or the end."""
        self.written += 1
        if self.written > self._ends_after:
            return Token("", -1.0, last=True)
        return Token(chr(96 + self.written), -0.5)

    def rest(self) -> str:
        """Return what was said to be held."""
        return self._held


class Box:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.text = ""
        self.finished: Finish | None = None
        self.failed: Refused | None = None
        self.over = threading.Event()

    def piece(self, text: str) -> None:
        """Add to the text."""
        self.text += text

    def finish(self, finish: Finish) -> None:
        """Keep the end."""
        self.text += finish.text
        self.finished = finish
        self.over.set()

    def fail(self, refused: Refused) -> None:
        """Keep the refusal."""
        self.failed = refused
        self.over.set()

    def wait(self) -> Finish:
        """Return the end once it is there."""
        assert self.over.wait(5)
        assert self.finished is not None
        return self.finished


def ask(max_tokens: int = 4, **more: object) -> Ask:
    """Make a request."""
    return Ask(prompt="p", max_tokens=max_tokens, **more)  # type: ignore[arg-type]


class Running:
    """A pacer with everything that a runtime puts around it."""

    def __init__(self, step_seconds: float, limits: Limits, faults: Faults) -> None:
        self.limits, self.faults = limits, faults
        self.pacer = Pacer(simulated_engine(limits, step_seconds), limits.max_queue_size, faults)
        self.pacer.start()

    def submit(self, sequence: Counting, wanted: Ask, box: Box) -> Entry:
        """Queue a request."""
        return begin(self.pacer, self.limits, sequence, wanted, box, self.faults)

    def statistics(self) -> Statistics:
        """Return the state, which is known."""
        found = self.pacer.statistics()
        assert found is not None
        return found

    def close(self) -> None:
        """Stop it."""
        self.pacer.close()


Run = Callable[..., Running]


@pytest.fixture
def run() -> Iterator[Run]:
    """Give a function that starts a pacer; all are closed after the test."""
    started: list[Running] = []

    def make(
        step_seconds: float = 0.0, limits: Limits = LIMITS, faults: Faults | None = None, **changes: int
    ) -> Running:
        started.append(Running(step_seconds, Limits(**{**vars(limits), **changes}), faults or Faults(None)))
        return started[-1]

    yield make
    for one in started:
        one.close()


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something is true; fail when it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_an_answer_has_exactly_max_tokens(run: Run) -> None:
    """Without an end token the answer stops at max_tokens with reason length, and every block is free again."""
    pacer, box = run(), Box()
    pacer.submit(Counting(3), ask(5), box)

    finish = box.wait()

    assert "abcde" == box.text
    assert ("length", "", 3, 5, -2.5) == (
        finish.reason,
        finish.stop_reason,
        finish.prompt_tokens,
        finish.output_tokens,
        finish.cumulative_logprob,
    )
    assert (0, 10) == (pacer.statistics().active, pacer.statistics().kv_free_blocks)


def test_the_end_token_is_not_part_of_the_answer(run: Run) -> None:
    """An end token gives reason stop and does not count; held text still comes out."""
    pacer, box = run(), Box()
    pacer.submit(Counting(3, ends_after=2, held="!"), ask(9), box)

    finish = box.wait()

    assert ("ab!", "stop", 2) == (box.text, finish.reason, finish.output_tokens)


def test_a_stop_text_ends_the_answer(run: Run) -> None:
    """A stop text over several tokens ends the answer before it and is named."""
    pacer, box = run(), Box()
    pacer.submit(Counting(1), ask(20, stop=("cd",)), box)

    finish = box.wait()

    assert ("ab", "stop", "cd", 4) == (box.text, finish.reason, finish.stop_reason, finish.output_tokens)


def test_times_are_in_order(run: Run) -> None:
    """Arrival, first schedule, first token and last token follow each other; blocks cover prompt and answer."""
    pacer, box = run(0.01), Box()
    pacer.submit(Counting(3), ask(5), box)

    cost = box.wait().performance

    assert cost.arrival_ns <= cost.first_scheduled_ns < cost.first_token_ns < cost.last_token_ns
    assert (2, 2, 1) == (cost.kv_total_blocks, cost.kv_new_blocks, cost.kv_missed_blocks)


def test_long_prompts_are_read_in_chunks(run: Run) -> None:
    """With chunked prefill a prompt longer than a step's tokens is spread over steps of whole blocks."""
    pacer, box = run(0.02), Box()
    pacer.submit(Counting(19), ask(1), box)
    box.wait()

    assert 3 == pacer.statistics().iteration


def test_admission_is_in_order_and_within_the_pool(run: Run) -> None:
    """A request that finds too few free blocks waits, and nobody overtakes it."""
    pacer = run(0.02, max_batch_size=3)
    boxes = [Box() for _ in range(3)]
    pacer.submit(Counting(4), ask(20), boxes[0])  # 6 of 10 blocks
    pacer.submit(Counting(4), ask(20), boxes[1])  # does not fit beside it
    pacer.submit(Counting(1), ask(1), boxes[2])  # would fit, but came later

    until(lambda: pacer.statistics().iteration >= 1)
    state = pacer.statistics()
    assert (1, 2, 6) == (state.active, state.queued, state.kv_used_blocks)

    boxes[0].wait()
    boxes[2].wait()
    assert 6 == boxes[1].wait().performance.kv_total_blocks


def test_statistics_while_busy(run: Run) -> None:
    """Active, scheduled, generating and queued requests, blocks and their fraction are those of the moment."""
    pacer = run(0.02)
    boxes = [Box() for _ in range(3)]
    for box in boxes:
        pacer.submit(Counting(4), ask(8), box)
    until(lambda: pacer.statistics().iteration >= 2)

    state = pacer.statistics()

    assert (2, 2, 2, 1) == (state.active, state.max_active, state.scheduled, state.queued)
    assert (0, 0, 2, 0) == (state.context, state.context_tokens, state.generation_requests, state.waiting)
    assert (10, 4, 6, 4, 0.6) == (
        state.kv_max_blocks,
        state.kv_free_blocks,
        state.kv_used_blocks,
        state.tokens_per_block,
        state.kv_fraction,
    )
    assert abs(state.timestamp_us / 1e6 - time.time()) < 5


def test_an_idle_engine_makes_no_steps(run: Run) -> None:
    """After the last answer the counts are 0 and the iteration counter stands still."""
    pacer, box = run(), Box()
    pacer.submit(Counting(4), ask(2), box)
    box.wait()
    before = pacer.statistics()
    time.sleep(0.05)

    assert before == pacer.statistics()
    assert (0, 0, 0, 2) == (before.active, before.scheduled, before.context_tokens, before.iteration)


def test_waiting_is_active_minus_scheduled(run: Run) -> None:
    """A request that gets no part of the token budget is active and waits."""
    pacer = run(0.05)
    boxes = (Box(), Box())
    pacer.submit(Counting(24), ask(1), boxes[0])
    pacer.submit(Counting(4), ask(1), boxes[1])
    until(lambda: pacer.statistics().iteration == 1)

    state = pacer.statistics()

    assert (2, 1, 1, 1, 8) == (state.active, state.scheduled, state.context, state.waiting, state.context_tokens)


def test_a_full_queue_refuses(run: Run) -> None:
    """Beyond active and queued requests the next one is refused as UNAVAILABLE, and the others go on."""
    pacer = run(0.02, max_queue_size=1)
    boxes = [Box() for _ in range(3)]
    for box in boxes:
        pacer.submit(Counting(1), ask(3), box)

    with pytest.raises(Refused, match="queue full: 1 requests wait already") as refused:
        pacer.submit(Counting(1), ask(3), Box())

    assert "UNAVAILABLE" == refused.value.status
    assert ["abc"] * 3 == [(box.wait(), box.text)[1] for box in boxes]


def test_no_queue_at_all_still_serves(run: Run) -> None:
    """With max_queue_size 0 a request runs as long as it can be admitted at once."""
    pacer, box = run(max_queue_size=0), Box()
    pacer.submit(Counting(1), ask(1), box)

    assert "length" == box.wait().reason


@pytest.mark.parametrize(
    ("prompt", "tokens", "changes", "complaint"),
    [
        (0, 1, {}, "text_input has no tokens"),
        (60, 5, {}, "prompt of 60 tokens plus sampling_param_max_tokens 5 is 65, above max_seq_len 64"),
        (9, 1, {"chunked_prefill": False}, "prompt of 9 tokens is above max_num_tokens 8"),
        (30, 11, {}, "41 tokens need 11 KV blocks, the pool has 10"),
    ],
)
def test_what_can_never_run_is_refused(
    run: Run, prompt: int, tokens: int, changes: dict[str, int], complaint: str
) -> None:
    """A request above a limit is refused at once with the numbers compared."""
    with pytest.raises(Refused) as refused:
        run(**changes).submit(Counting(prompt), ask(tokens), Box())

    assert complaint == str(refused.value)


def test_cancelling_frees_the_blocks(run: Run) -> None:
    """A cancelled request stops, its blocks are free, and the next one is admitted; a second cancel does no harm."""
    pacer = run(0.01)
    boxes = (Box(), Box())
    running = Counting(4)
    job = pacer.submit(running, ask(30), boxes[0])
    queued = pacer.submit(Counting(4), ask(30), boxes[1])
    until(lambda: running.written > 1)

    queued.cancel()
    job.cancel()
    job.cancel()

    until(lambda: pacer.statistics().kv_used_blocks == 0)
    assert 0 == pacer.statistics().queued
    assert not boxes[0].over.is_set()


def test_the_pace_holds(run: Run) -> None:
    """Thirty steps of 20 ms take 600 ms: the 10 ms of work in each do not add to it."""

    class Working(Counting):
        def write(self) -> Token:
            """Work for half a step."""
            time.sleep(0.01)
            return super().write()

    pacer, box = run(0.02), Box()
    started = time.monotonic()
    pacer.submit(Working(1), ask(30), box)
    box.wait()

    assert 0.6 <= time.monotonic() - started < 0.85


def test_closing_fails_what_runs(run: Run) -> None:
    """When the pacer is closed, active and queued requests are told, and new ones are refused."""
    pacer = run(0.05)
    boxes = [Box() for _ in range(3)]
    for box in boxes:
        pacer.submit(Counting(1), ask(9), box)

    pacer.close()

    assert ["the server is shutting down"] * 3 == [str(box.failed) for box in boxes]
    with pytest.raises(Refused, match="the server is shutting down"):
        pacer.submit(Counting(1), ask(1), Box())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_the_engine_is_told_to_everyone(run: Run) -> None:
    """An error while generating fails every request with its text instead of leaving them hanging."""

    class Faulty(Counting):
        def write(self) -> Token:
            raise MemoryError("no more")

    pacer, boxes = run(0.01), (Box(), Box())
    pacer.submit(Counting(1), ask(9), boxes[0])
    pacer.submit(Faulty(1), ask(9), boxes[1])
    for box in boxes:
        assert box.over.wait(5)

    assert ["the engine has stopped: MemoryError('no more')"] * 2 == [str(box.failed) for box in boxes]
    assert "INTERNAL" == boxes[0].failed.status  # type: ignore[union-attr]
    assert pacer.pacer.statistics() is None


def test_what_computes_together_is_given_a_step_at_once() -> None:
    """All requests of a step are handed over before any is told of it, and each that is over is left exactly once."""

    class Batch:
        def __init__(self) -> None:
            self.steps: list[int] = []
            self.left: list[TextTurn] = []

        def step(self, turns: list[TextTurn]) -> None:
            self.steps.append(len(turns))

        def leave(self, turn: TextTurn) -> None:
            self.left.append(turn)

    batch, boxes = Batch(), [Box(), Box(), Box()]
    pacer = Pacer(simulated_engine(LIMITS, 0.01), LIMITS.max_queue_size, None, batch)
    entries = [begin(pacer, LIMITS, Counting(1), ask(3), box, Faults(None)) for box in boxes[:2]]
    gone = begin(pacer, LIMITS, Counting(1), ask(3), boxes[2], Faults(None))
    gone.cancel()
    gone.cancel()
    pacer.start()
    for box in boxes[:2]:
        box.wait()
    pacer.close()
    assert 6 == sum(batch.steps)
    assert sorted(map(id, batch.left)) == sorted(id(one.turn) for one in (*entries, gone))
