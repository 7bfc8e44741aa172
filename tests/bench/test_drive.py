"""A load as it is sent, and its stamps."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.bench.support import driven_at, small_load
from tests.support.token_server import token_server
from trtllm_kit.bench.client import HttpClient, address_of, clock
from trtllm_kit.bench.dialects import DIALECTS, Ask, Part
from trtllm_kit.bench.drive import Limits, drive, records_of
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.lag import P99_LIMIT
from trtllm_kit.bench.live import Glance
from trtllm_kit.bench.load import constant
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.bench.record import Counted


class Slow:
    """A client whose server answers one request after the other."""

    arrived: Callable[[], float]

    def __init__(self, seconds: float) -> None:
        self.seconds, self.turn, self.most, self.now = seconds, asyncio.Lock(), 0, 0

    async def ask(self, ask: Ask, heard: Heard) -> None:
        """Answer in turn."""
        self.now += 1
        self.most = max(self.most, self.now)
        heard.sent = clock()
        async with self.turn:
            await asyncio.sleep(self.seconds)
            heard.take(Part("a"), clock())
            heard.end(clock())
        self.now -= 1

    async def close(self) -> None:
        """Nothing is open."""


def test_an_open_loop_sends_on_while_the_server_is_behind() -> None:
    """Ten requests at 200 a second of a server that takes 20 ms each: all are under way, and the last waits longest."""
    load, made = small_load(requests=10, arrivals=constant(200.0)), []
    driven = drive(load, Prompts(load), lambda: made.append(Slow(0.02)) or made[0], Limits())
    waits = [record.served.ttft for record in records_of(driven, load, Prompts(load))]
    assert made[0].most > 5
    assert waits[-1] > 0.1
    assert waits[-1] > waits[0]


def test_a_closed_loop_has_as_many_under_way_as_users() -> None:
    """Three users never have a fourth request under way."""
    load, made = small_load(users=3, requests=9), []
    driven = drive(load, Prompts(load), lambda: made.append(Slow(0.002)) or made[0], Limits())
    assert (9, 3) == (len(driven.sent), made[0].most)


def test_a_fault_of_the_client_itself_is_no_failure_of_the_server() -> None:
    """An error in our own code ends the run with it."""

    class Wrong(Slow):
        async def ask(self, ask: Ask, heard: Heard) -> None:
            raise ZeroDivisionError

    load = small_load(requests=4)
    with pytest.raises(ZeroDivisionError):
        drive(load, Prompts(load), lambda: Wrong(0.0), Limits())


@pytest.mark.parametrize("api", ["triton", "triton-legacy", "openai", "openai-chat"])
def test_each_interface_is_heard_token_by_token(api: str) -> None:
    """Every token of every answer has a stamp of its own, not before it was written, and in order."""
    with token_server(first=0.01, gap=0.004) as (url, asked):
        load = small_load(users=2, requests=4)
        driven = driven_at(url, load, api)
    for sent in driven.sent:
        heard = sent.heard
        assert (None, 6) == (heard.failure, len(heard.stamps))
        assert all(stamp >= float(text) for stamp, text in zip(heard.stamps, heard.texts, strict=True))
        assert all(later >= earlier for earlier, later in pairwise(heard.stamps))
    counted = {record.counted for record in records_of(driven, load, Prompts(load))}
    assert {Counted.SERVER if api.startswith("openai") else Counted.LIMIT} == counted
    assert 4 == len(asked)


def test_a_later_turn_repeats_the_talk_before_it() -> None:
    """The third prompt of a conversation begins with the second, and holds the answer to it."""
    with token_server(first=0.0, gap=0.0) as (url, asked):
        load = small_load(users=1, requests=3, turns=3)
        driven = driven_at(url, load)
    prompts = [one["text_input"] for one in asked]
    assert prompts[2].startswith(prompts[1] + "\n" + driven.sent[1].heard.text)
    assert prompts[1].startswith(prompts[0])


@pytest.mark.parametrize(("pieces", "said"), [(("1", "10"), "110"), (("a", "ab"), "aab"), (("x", "y"), "xy")])
def test_a_turn_repeats_growing_pieces_whole_once_an_answer_showed_that_pieces_are_new(
    pieces: tuple[str, ...], said: str
) -> None:
    """The first answer of the run is of pieces that begin differently, so no later one is taken to repeat itself."""
    prompts: list[str] = []

    class Pieces(Slow):
        async def ask(self, ask: Ask, heard: Heard) -> None:
            prompts.append(ask.prompt)
            heard.sent = clock()
            for text in pieces if len(prompts) > 1 else ("p", "q"):
                heard.take(Part(text), clock())
            heard.end(clock())

    load = small_load(users=1, requests=3, turns=3)
    drive(load, Prompts(load), lambda: Pieces(0.0), Limits())
    assert prompts[1].startswith(f"{prompts[0]}\npq\n")
    assert prompts[2].startswith(f"{prompts[1]}\n{said}\n")


def test_a_server_that_repeats_itself_is_not_repeated_twice() -> None:
    """Where every answer of the run grows, a later turn holds the last piece of it alone."""
    prompts: list[str] = []

    class Repeats(Slow):
        async def ask(self, ask: Ask, heard: Heard) -> None:
            prompts.append(ask.prompt)
            heard.sent = clock()
            for text in ("a", "a b", "a b c"):
                heard.take(Part(text), clock())
            heard.end(clock())

    load = small_load(users=1, requests=3, turns=3)
    drive(load, Prompts(load), lambda: Repeats(0.0), Limits())
    assert prompts[2].startswith(f"{prompts[1]}\na b c\n")


def test_warm_up_is_marked() -> None:
    """The first requests by number are those that no figure counts."""
    with token_server(first=0.0, gap=0.0) as (url, _):
        load = small_load(users=2, requests=5, warmup=2)
        driven = driven_at(url, load)
    assert [True, True, False, False, False] == [one.warm for one in records_of(driven, load, Prompts(load))]


def test_a_client_that_is_held_up_says_so() -> None:
    """Its loop stands still again and again while tokens come: the figures are its own, and it names by how much."""

    async def hold() -> None:
        while True:
            time.sleep(0.03)
            await asyncio.sleep(0.005)

    held: list[asyncio.Task[None]] = []

    def client(url: str) -> HttpClient:
        held.append(asyncio.ensure_future(hold()))
        return HttpClient(address_of(url), DIALECTS["triton"], "tensorrt_llm", silence=10)

    load = small_load(users=4, requests=8, tokens=40)
    with token_server(first=0.005, gap=0.002) as (url, _):
        driven = drive(load, Prompts(load), lambda: client(url), Limits(answer=10))
    assert driven.lag.p99 > P99_LIMIT
    assert "late" in driven.lag.bottleneck


def test_a_run_tells_of_itself_while_it_goes_on() -> None:
    """Each second: what ended, what is under way, and each piece and first token once."""
    told: list[Glance] = []
    load = small_load(users=2, requests=6, tokens=60)
    with token_server(first=0.05, gap=0.01) as (url, _):
        drive(
            load,
            Prompts(load),
            lambda: HttpClient(address_of(url), DIALECTS["triton"], "tensorrt_llm", silence=10),
            Limits(answer=10),
            told.append,
        )
    firsts = sum(len(one.firsts) for one in told)
    assert 2 <= firsts <= 6
    assert firsts <= sum(one.pieces for one in told) <= 360
    assert all(one.ended + one.running <= 6 for one in told)
    assert [0] * len(told) == [one.failed for one in told]


def test_a_signal_while_garbage_is_collected_ends_the_run() -> None:
    """What a handler raises in a finaliser is lost, so it is called once that is over."""

    class Garbage:
        itself: object

        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    gc.disable()
    garbage = Garbage()
    garbage.itself = garbage
    del garbage
    try:
        with pytest.raises(KeyboardInterrupt):
            driven_at("http://127.0.0.1:9", small_load())
    finally:
        gc.enable()
