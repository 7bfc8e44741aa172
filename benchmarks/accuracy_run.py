"""All figures of accuracy, computed: rows beside what the estimate says of them, grouped and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks.decisions import FirstToken, Power, chosen_ranks, communication_shares, first_tokens, power
from benchmarks.figures import Errors, errors_of, rank_correlation
from benchmarks.groups import TARGETS, Target, group_of
from benchmarks.points import Point, Times, point_of, times_of
from benchmarks.published import Published, predicted, read_published
from benchmarks.silicon import Row, Table, read_table
from trtllm_kit.estimate.step_time import StepClock

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured row and what the estimate says of it."""

    point: Point
    times: Times

    @property
    def ttft(self) -> tuple[float, float]:
        """Return predicted and measured seconds to the first token."""
        return self.times.ttft_s, self.point.row.ttft_s

    @property
    def tpot(self) -> tuple[float, float]:
        """Return predicted and measured seconds a token after the first."""
        return self.times.tpot_s, self.point.row.tpot_s


@dataclass(frozen=True, slots=True)
class Group:
    """The errors of some rows."""

    name: str
    ttft: Errors
    tpot: Errors
    worst_ttft: str
    worst_tpot: str


@dataclass(frozen=True, slots=True)
class Held:
    """One target and what was reached."""

    target: Target
    group: Group

    @property
    def met(self) -> bool:
        """Whether all that is asked is reached."""
        asked = ((self.target.tpot, self.group.tpot), (self.target.ttft, self.group.ttft))
        return all(limit is None or errors.mape <= limit for limit, errors in asked)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Published throughput of one model beside the estimate."""

    model: str
    errors: Errors
    rank: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is reported."""

    table: Table
    compared: tuple[Compared, ...]
    groups: tuple[Group, ...]
    held: tuple[Held, ...]
    first_tokens: tuple[FirstToken, ...]
    shares: dict[str, float]
    power: Power
    ranks: dict[str, dict[int, float]]
    throughput: tuple[Throughput, ...] = field(default=())
    """Empty where there was no file of published figures."""


def find(rows: Path, published: Path | None, jobs: int = 1, every: int = 1) -> Findings:
    """Compute all figures, or those of one row in ``every``; with more than one job in processes of their own."""
    table = read_table(rows)
    chosen = table.rows[::every]
    times = spread_over(served, chosen, jobs)
    compared = tuple(Compared(point_of(row), one) for row, one in zip(chosen, times, strict=True))
    by_group: dict[str, list[Compared]] = {}
    for one in compared:
        by_group.setdefault(group_of(one.point), []).append(one)
    return Findings(
        table=table,
        compared=compared,
        groups=tuple(grouped(name, ones) for name, ones in sorted(by_group.items())),
        held=tuple(_held(by_group)),
        first_tokens=tuple(first_tokens(StepClock)),
        shares=communication_shares(StepClock),
        power=power(StepClock),
        ranks=chosen_ranks(StepClock),
        throughput=tuple(_throughput(published, jobs, every)) if published else (),
    )


def served(row: Row) -> Times:
    """Return what the estimate says of one row."""
    point = point_of(row)
    return times_of(point, StepClock(point.subject))


def grouped(name: str, ones: Sequence[Compared]) -> Group:
    """Return the errors of rows."""
    ttft, tpot = max(ones, key=lambda one: _off(one.ttft)), max(ones, key=lambda one: _off(one.tpot))
    return Group(
        name,
        errors_of([one.ttft for one in ones]),
        errors_of([one.tpot for one in ones]),
        ttft.point.row.label,
        tpot.point.row.label,
    )


def _off(pair: tuple[float, float]) -> float:
    return abs(pair[0] / pair[1] - 1)


def _held(by_group: dict[str, list[Compared]]) -> Iterable[Held]:
    for target in TARGETS:
        ones = [one for name in target.groups for one in by_group.get(name, ())]
        if ones:
            yield Held(target, grouped(target.name, ones))


def _throughput(path: Path, jobs: int, every: int) -> Iterable[Throughput]:
    rows = read_published(path)[::every]
    rates = list(spread_over(rate, rows, jobs))
    by_model: dict[str, list[tuple[float, float]]] = {}
    for row, found in zip(rows, rates, strict=True):
        by_model.setdefault(row.model, []).append((found, row.tokens_per_second))
    by_model["all of them"] = [(found, row.tokens_per_second) for row, found in zip(rows, rates, strict=True)]
    for model, pairs in by_model.items():
        yield Throughput(model, errors_of(pairs), rank_correlation(pairs))


def rate(row: Published) -> float:
    """Return the tokens a second of a published run."""
    return predicted(row, StepClock)


def spread_over(work: Callable[[Given], Made], given: Sequence[Given], jobs: int) -> Iterable[Made]:
    """Return the work's results in order, from as many processes."""
    if jobs <= 1:
        return [work(one) for one in given]
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        return list(pool.map(work, given, chunksize=16))
