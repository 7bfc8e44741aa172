"""Asks a deployment every prompt: a few twice, all in pieces, all whole; greedy, with the client of the bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtllm_kit.bench.drive import Driven, Limits, Sent, Told, drive, records_of
from trtllm_kit.bench.live import Glance
from trtllm_kit.bench.load import Load, Sampling, closed
from trtllm_kit.bench.prompts import FileTokenizer, Prompts
from trtllm_kit.bench.record import Failure
from trtllm_kit.bench.run import Server
from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.workload import Workload, fixed
from trtllm_kit.migrate.comparison.sides import Measured, Said, Side

USUAL_TWICE = 5
"""Prompts that are asked twice before all others."""
_NOT_HEARD = (Failure.REFUSED, Failure.STALLED, Failure.UNFINISHED)


@dataclass(frozen=True, slots=True)
class Question:
    """What both deployments are asked."""

    prompts: tuple[str, ...]
    tokens: int
    """Most tokens of an answer."""
    users: int = 1
    """Requests under way at once."""
    twice: int = USUAL_TWICE
    streams: bool = True
    """Whether answers are also asked for in pieces."""
    limits: Limits = Limits()  # noqa: RUF009  # it is frozen


@dataclass(frozen=True, slots=True)
class Asked:
    """One deployment, and what counts its tokens."""

    name: str
    """``old`` or ``new``."""
    server: Server
    tokenizer: FileTokenizer | None = None


def side_of(asked: Asked, question: Question, told: Callable[[str], None] = lambda _: None) -> Side:
    """Return what a deployment says to every prompt; ``told`` hears what is being done.

    The prompts that are asked twice are also the warm-up of what is measured, where there are more than as many again.
    Raises ``RequestFailed`` where nothing at all is heard of the first of them, and what interrupts a run.
    """
    first = question.prompts[: question.twice]
    told(f"{asked.name}: {len(first)} prompts twice")
    begun = _run(asked, question, Load(_work(question, 2 * len(first)), _GREEDY, texts=first, whole=True), told)
    again = _said(begun, asked)
    _require_heard(asked, begun)
    warmup = len(first) if len(question.prompts) > 2 * len(first) else 0
    loads = [
        Load(_work(question, len(question.prompts), warmup), _GREEDY, texts=question.prompts, whole=whole)
        for whole in ((False, True) if question.streams else (True,))
    ]
    runs = []
    for load in loads:
        told(f"{asked.name}: {len(question.prompts)} prompts, answers {'whole' if load.whole else 'in pieces'}")
        runs.append(_run(asked, question, load, told))
    records = records_of(runs[0], loads[0], Prompts(loads[0], asked.tokenizer))
    server, texts = asked.server, [_said(run, asked) for run in runs]
    return Side(
        asked.name,
        server.address.place,
        server.api,
        server.model,
        tuple(zip(again[: len(first)], again[len(first) :], strict=True)),
        texts[-1],
        texts[0] if question.streams else (),
        Measured(records, runs[0].lag, question.streams),
    )


_GREEDY = Sampling(greedy=True)


def _work(question: Question, requests: int, warmup: int = 0) -> Workload:
    return Workload(fixed(1), fixed(question.tokens), closed(question.users), requests, warmup=warmup)


def _run(asked: Asked, question: Question, load: Load, told: Callable[[str], None]) -> Driven:
    """Send a load to its end; raises what interrupts it."""
    prompts = Prompts(load, asked.tokenizer)
    driven = drive(load, prompts, asked.server.client, question.limits, _counting(asked.name, told))
    if driven.stopped is not None:
        raise driven.stopped
    return driven


def _counting(name: str, told: Callable[[str], None]) -> Told:
    last = 0

    def tell(seen: Glance) -> None:
        nonlocal last
        if seen.ended != last:
            last = seen.ended
            told(f"{name}: {seen.ended:,} ended")

    return tell


def _said(driven: Driven, asked: Asked) -> tuple[Said, ...]:
    """Return the answers by number."""
    return tuple(_one(sent, asked) for sent in sorted(driven.sent, key=lambda sent: sent.number))


def _one(sent: Sent, asked: Asked) -> Said:
    heard, joined = sent.heard, "".join(sent.heard.texts)
    counted = heard.prompt_tokens or (None if asked.tokenizer is None else asked.tokenizer.count(sent.prompt))
    if heard.failure not in (None, Failure.EMPTY):
        return Said(failure=str(heard.failure), why=heard.why, prompt_tokens=counted)
    return Said(heard.text, None if joined == heard.text else joined, prompt_tokens=counted)


def _require_heard(asked: Asked, driven: Driven) -> None:
    """Raise ``RequestFailed`` where waiting for every other prompt would be in vain."""
    failures = [sent.heard.failure for sent in driven.sent]
    if all(failure in _NOT_HEARD for failure in failures):
        raise RequestFailed(
            f"the {asked.name} deployment at {asked.server.address.place} gives no answer",
            why=f"{len(failures)} requests: {failures[0]}, {driven.sent[0].heard.why}",
            hint="start it, or correct its URL, or a longer --timeout",
        )
