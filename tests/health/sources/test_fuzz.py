"""Whatever a server sends: no crash, no hang, and no OK."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.health.support import NOW, SEEDS, TARGET, page_files
from trtllm_kit.health.evaluate import evaluate, next_memory
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Outcome, Snapshot
from trtllm_kit.health.sources.http_answer import Answer
from trtllm_kit.health.sources.prometheus_text import _page
from trtllm_kit.health.verdict import State, Verdict

RULES = Ruleset(tuple(rule for rule in shipped_rules() if rule.enabled))
NEEDED = Ruleset(SEEDS)
PAGES = [path.read_bytes() for path in page_files()]


def judged(body: bytes, rules: Ruleset) -> Verdict:
    """Judge what a server sent, twice the same, and let it be remembered."""
    page = _page(Answer(Outcome.OK, "", 200, body), time.monotonic() + 5.0, None)
    samples = tuple(
        Snapshot(page.outcome, page.problem, NOW + second, second, 0.0, 200, page.series, page.timestamps)
        for second in (0.0, 1.0)
    )
    verdict = evaluate(TARGET, samples, rules)
    next_memory(NOTHING, samples, rules, verdict)
    return verdict


def mutated(seed: int) -> bytes:
    """Damage a real page: bytes flipped, cut out, doubled, lines shuffled."""
    dice = random.Random(seed)
    body = bytearray(dice.choice(PAGES))
    for _ in range(dice.randint(1, 8)):
        place, length = dice.randrange(len(body)), dice.randint(1, 40)
        kind = dice.randrange(4)
        if kind == 0:
            body[place] = dice.randrange(256)
        elif kind == 1:
            del body[place : place + length]
        elif kind == 2:
            body[place:place] = body[place : place + length]
        else:
            lines = bytes(body).split(b"\n")
            dice.shuffle(lines)
            body = bytearray(b"\n".join(lines))
        body = body or bytearray(b"x")
    return bytes(body)


def not_one_crash(count: int) -> None:
    """Judge so many damaged pages, each in bounded time."""
    for seed in range(count):
        begun = time.process_time()
        judged(mutated(seed), RULES)
        assert time.process_time() - begun < 2.0, f"seed {seed}"


def test_damaged_pages_are_judged() -> None:
    """Five hundred damaged real pages, the same each time, give a verdict each."""
    not_one_crash(500)


@pytest.mark.slow
def test_ten_thousand_damaged_pages_are_judged() -> None:
    """Ten thousand of them do."""
    not_one_crash(10_000)


@settings(max_examples=500, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode) | st.from_regex(rb"\A\[.{0,60}\]\Z"))
def test_garbage_is_never_ok(body: bytes) -> None:
    """Bytes, texts and lists that no server sends are never OK, whatever need not be there."""
    assert State.OK is not judged(body, NEEDED).state
