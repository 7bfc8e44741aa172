"""What people do with a model, as loads with a promise. Pure.

The promises are what applications in production were reported to reach: a coding assistant with a mean of 142 ms for
an answer at 1,053 tokens/s, a document of 100,000 characters summarised in 4.8 s, and conversations of 50 turns with
189 ms a turn and no gap above 300 ms. ``first-to-nth`` is how speed for one user is published: 200 prompts,
temperature 0.7, top_p 0.9, from the first to the 512th token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from trtllm_kit.bench.load import Bursts, Load, Sampling, bursts_every, closed
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.workload import Workload, first_to_nth, fixed, within


@dataclass(frozen=True, slots=True)
class Sizes:
    """What may be asked otherwise than a scenario usually has it; None leaves it."""

    prompt: int | None = None
    answer: int | None = None
    users: int | None = None
    requests: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One use."""

    about: str
    slo: Slo | None
    """What is promised where nothing else is."""
    load: Callable[[Sizes], Load]


def _first_to_nth(sizes: Sizes) -> Load:
    nth = sizes.answer or 512
    prompts, users = within(0.5, sizes.prompt or 1024), sizes.users or 1
    work = first_to_nth(prompts, nth, sizes.requests or 200, users=users, seed=sizes.seed)
    return Load(work, Sampling(0.7, 0.9), nth=nth)


def _coding(sizes: Sizes) -> Load:
    users, requests = sizes.users or 4, sizes.requests or 200
    prompt = sizes.prompt or 1500
    work = Workload(
        within(0.6, prompt), fixed(sizes.answer or 150), closed(users), requests, sizes.seed,
        warmup=_warmup(users, requests), shared_prefix=prompt // 3,
    )  # fmt: skip
    return Load(work, Sampling(0.2, 0.95))


def _summarise(sizes: Sizes) -> Load:
    users, requests = sizes.users or 1, sizes.requests or 20
    prompts, answers = within(0.9, sizes.prompt or 25_000), fixed(sizes.answer or 1250)
    return Load(Workload(prompts, answers, closed(users), requests, sizes.seed, warmup=_warmup(users, requests)))


def _multi_turn(sizes: Sizes) -> Load:
    users, turns = sizes.users or 4, 50
    prompts, answers = within(0.5, sizes.prompt or 80), within(0.5, sizes.answer or 120)
    work = Workload(
        prompts, answers, closed(users, 0.5), sizes.requests or users * turns, sizes.seed, shared_prefix=20, turns=turns
    )  # fmt: skip
    return Load(work, Sampling(0.7))


def _agentic(sizes: Sizes) -> Load:
    calls = sizes.users or 24
    requests = sizes.requests or calls * 8
    bursts = ceil(requests / calls)
    shape = Bursts(calls, sizes.prompt or 2000, 400, 150, sizes.answer or 120)
    prompts, answers = fixed(shape.base), fixed(shape.answer)
    work = Workload(prompts, answers, bursts_every(4.0, calls, bursts), requests, sizes.seed)
    return Load(work, Sampling(0.2), drawn=shape.request)


def _warmup(users: int, requests: int) -> int:
    return min(users, requests // 4)


SCENARIOS: Mapping[str, Scenario] = {
    "first-to-nth": Scenario("speed for one user, from the first to the nth token", None, _first_to_nth),
    "coding": Scenario("completions of a coding assistant: long shared context, 150 tokens", Slo(e2e=0.142), _coding),
    "summarise": Scenario("a document of 100,000 characters, 1,250 tokens out", Slo(e2e=4.8), _summarise),
    "multi-turn": Scenario("conversations of 50 turns, each on all before it", Slo(e2e=0.189, gap=0.3), _multi_turn),
    "agentic": Scenario("bursts of 24 calls at once on a shared, growing beginning", None, _agentic),
}
"""By the name that ``--scenario`` takes."""
