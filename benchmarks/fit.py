"""Fit the constants of ``spec/ceilings.yaml`` on measured rows: all of them together, each within its bounds.

    python -m benchmarks.fit ROWS.csv [TABLES.yaml] [--sample N] [--write]

Every load is run once, its steps are kept (``benchmarks.recorded``), and constants are moved until the steps take as
long as was measured: least squares of the logarithm of estimate over measurement, in which outliers count less.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from benchmarks.closed_loop import run_loop
from benchmarks.fit_file import rewritten
from benchmarks.points import Point, point_of
from benchmarks.published import Published, queued_seconds, read_published, subject_of_row
from benchmarks.recorded import Recorder, load_of
from benchmarks.silicon import Row, read_table
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.shipped_yaml import parse_yaml
from trtllm_kit.spec.ceilings import CEILINGS, Known, known_of, with_values

Key = tuple[str, str]
"""An architecture or a runtime, and the name of a constant."""
Values = Mapping[Key, float]
Vector = npt.NDArray[np.float64]
SETTINGS = Path(__file__).with_name("fit.yaml")
PULL = 0.1
"""Weight of the pull to the value before the data, across the whole range of a constant."""
OUTLIER = 0.03
"""Weighted error from which a row counts less and less."""
LATE = 6.0
"""First tokens that come later than so many seconds wait for the cache, and tell nothing of steps."""


@dataclass(frozen=True, slots=True)
class Item:
    """One figure to meet."""

    label: str
    subject: Subject
    weight: float
    measured: float
    estimate: Callable[[StepClock], float]

    def error(self, values: Values) -> float:
        """Return the weighted logarithm of the estimate over the measurement."""
        clock = StepClock(self.subject, known_with(self.subject, values))
        return self.weight * math.log(max(self.estimate(clock), 1e-9) / self.measured)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What came out."""

    values: dict[Key, float]
    spread: dict[Key, float]
    """Two standard errors of each constant."""
    error: float
    """Root of the mean squared weighted error."""


def known_with(subject: Subject, values: Values) -> Known:
    """Return what is known of a subject's card and release, with values in place of the file's."""
    known = _known(subject)
    stated = {name: one.value for name, one in known.constants.items()}
    for place in (known.architecture, known.host):
        stated |= {name: value for (where, name), value in values.items() if where == place}
    return with_values(known, stated)


_KNOWN: dict[tuple[str, str, str], Known] = {}


def _known(subject: Subject) -> Known:
    key = (subject.release, subject.backend, subject.hardware.gpu.name)
    if key not in _KNOWN:
        _KNOWN[key] = known_of(subject.hardware.gpu, subject.release, subject.backend)
    return _KNOWN[key]


@cache
def settings() -> dict[str, Any]:
    """Return ``fit.yaml``."""
    document: dict[str, Any] = yaml.safe_load(SETTINGS.read_text("utf-8"))
    return document


def free_constants() -> dict[Key, float]:
    """Return the constants that the file says are fitted on measured rows, with their values now."""
    document = parse_yaml(CEILINGS)
    found: dict[Key, float] = {}
    for row in (*document["architectures"], *document["hosts"]):
        place = row.get("architecture") or f"{row['backend']} {row['since'] or 'first'} to {row['until'] or 'last'}"
        for name, one in row["constants"].items():
            if one["how"] == "fitted" and one["source"] in _FITTED_HERE and name in settings()["bounds"]:
                found[place, name] = one["value"]
    return found


_FITTED_HERE = ("silicon", "published")


def fit(found: Sequence[Item], start: Values, rounds: int = 6) -> Fitted:
    """Move the constants of ``start`` until the items are met as well as they can be (Levenberg and Marquardt)."""
    keys = list(start)
    place = _Space(keys)
    unit = place.units(start)
    errors = _errors(found, place.values(unit), unit, place)
    damping = 1e-3
    for _ in range(rounds):
        slopes = _slopes(found, unit, errors, place)
        weights = 1 / np.sqrt(1 + (errors / OUTLIER) ** 2)
        normal = slopes.T @ (slopes * weights[:, None])
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slopes.T @ (errors * weights))
        tried = np.clip(unit + step, 1e-3, 1 - 1e-3)
        new = _errors(found, place.values(tried), tried, place)
        if _loss(new) < _loss(errors):
            unit, errors, damping = tried, new, damping / 3
        else:
            damping *= 10
    return _fitted(found, unit, errors, place)


class _Space:
    """Constants as shares of their ranges."""

    def __init__(self, keys: Sequence[Key]) -> None:
        bounds = settings()["bounds"]
        self.keys = keys
        ends: list[Vector] = [np.array([float(bounds[name][end]) for _, name in keys]) for end in range(3)]
        self.before, self.low, self.high = ends

    def units(self, values: Values) -> Vector:
        """Return shares of the ranges."""
        stated = np.array([values[key] for key in self.keys])
        return np.clip((stated - self.low) / (self.high - self.low), 1e-3, 1 - 1e-3)

    def values(self, unit: Vector) -> dict[Key, float]:
        """Return the constants."""
        return dict(zip(self.keys, (self.low + unit * (self.high - self.low)).tolist(), strict=True))

    def pull(self, unit: Vector) -> Vector:
        """Return how far each is from its value before the data."""
        return PULL * (unit - (self.before - self.low) / (self.high - self.low))


def _errors(items: Sequence[Item], values: Values, unit: Vector, place: _Space) -> Vector:
    return np.concatenate([[item.error(values) for item in items], place.pull(unit)])


def _slopes(items: Sequence[Item], unit: Vector, errors: Vector, place: _Space) -> Vector:
    """Return how every error changes with every constant; a constant of one place leaves items of others alone."""
    slopes = np.zeros((len(errors), len(unit)))
    for column, (where, _) in enumerate(place.keys):
        moved = unit.copy()
        moved[column] += _STEP if moved[column] + _STEP < 1 else -_STEP
        by = moved[column] - unit[column]
        values = place.values(moved)
        for row, item in enumerate(items):
            known = _known(item.subject)
            if where in (known.architecture, known.host):
                slopes[row, column] = (item.error(values) - errors[row]) / by
        slopes[len(items) + column, column] = PULL
    return slopes


_STEP = 0.01
"""Share of a constant's range that it is moved by, to see what changes."""


def _loss(errors: Vector) -> float:
    return float(np.sum(np.sqrt(1 + (errors / OUTLIER) ** 2) - 1))


def _fitted(items: Sequence[Item], unit: Vector, errors: Vector, place: _Space) -> Fitted:
    slopes = _slopes(items, unit, errors, place)
    weights = 1 / np.sqrt(1 + (errors / OUTLIER) ** 2)
    variance = float(np.sum(weights * errors**2) / max(1, len(items) - len(unit)))
    spread = 2 * np.sqrt(np.diag(np.linalg.inv(slopes.T @ (slopes * weights[:, None]))) * variance)
    ranges = (place.high - place.low) * spread
    return Fitted(
        place.values(unit), dict(zip(place.keys, ranges.tolist(), strict=True)), float(np.sqrt(np.mean(errors**2)))
    )


# --- what is met ------------------------------------------------------------------------------------------------------


def items_of(rows: Iterable[Row], published: Iterable[Published], values: Values, sample: int) -> list[Item]:
    """Run every load with those constants, and return what is to be met; ``sample`` bounds the rows of a group."""
    found: list[Item] = []
    by_group: dict[str, list[Point]] = {}
    for row in rows:
        group = f"{row.model} {row.precision} {row.system}"
        point = point_of(row) if group in settings()["groups"] else None
        if point is not None and not point.run.draft_tokens and point.run.certainty != "assumed":
            by_group.setdefault(group, []).append(point)
    for group, points in by_group.items():
        chosen = random.Random(1).sample(points, min(sample, len(points)))
        weight = settings()["groups"][group] / math.sqrt(len(chosen))
        for point in chosen:
            found += _measured(point, weight, values)
    tables: dict[str, list[Published]] = {}
    for one in published:
        tables.setdefault(f"{one.table} {one.model} {one.gpu}", []).append(one)
    for figures in tables.values():
        chosen_rows = random.Random(1).sample(figures, min(max(1, sample // 4), len(figures)))
        weight = settings()["published"] / math.sqrt(len(chosen_rows))
        found += [_throughput(one, weight, values) for one in chosen_rows]
    return found


def _measured(point: Point, weight: float, values: Values) -> list[Item]:
    """Return the time between tokens of a row, and that to the first one."""
    clock = StepClock(point.subject, known_with(point.subject, values))
    recorder = Recorder(clock)
    times = run_loop(point, recorder)
    load = load_of(recorder)
    per_token = times.tpot_s / load.token_seconds(clock)
    between = Item(
        point.row.label, point.subject, weight, point.row.tpot_s, lambda one: per_token * load.token_seconds(one)
    )
    before = load.prompt_seconds(clock)
    if point.row.ttft_s > LATE or not before:
        return [between]
    per_prompt = times.ttft_s / before
    first = Item(
        f"first token, {point.row.label}",
        point.subject,
        weight * settings()["first_tokens"],
        point.row.ttft_s,
        lambda one: one.request_seconds + one.reply_seconds + per_prompt * load.prompt_seconds(one),
    )
    return [between, first]


def _throughput(one: Published, weight: float, values: Values) -> Item:
    """Return the throughput of a published run, as seconds of it."""
    subject = subject_of_row(one)
    clock = StepClock(subject, known_with(subject, values))
    recorder = Recorder(clock)
    requests = -(-one.requests // subject.split.pipeline)
    took = queued_seconds(subject, recorder, one.prompt, one.answer, requests)
    load = load_of(recorder)
    share = took / load.seconds(clock)
    label = f"{one.table} {one.model} {one.gpu} {one.prompt}/{one.answer}"
    stated = one.requests * one.answer / one.tokens_per_second
    return Item(label, subject, weight, stated, lambda other: share * load.seconds(other))


def fit_rows(rows: Iterable[Row], published: Iterable[Published] = (), sample: int = 30, passes: int = 2) -> Fitted:
    """Fit on rows; loads are run again with the constants of the pass before."""
    rows, published = tuple(rows), tuple(published)
    fitted = Fitted(free_constants(), {}, 0.0)
    for _ in range(passes):
        fitted = fit(items_of(rows, published, fitted.values, sample), fitted.values)
    return fitted


def main() -> None:
    """Fit, print, and write the file when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("tables", type=Path, nargs="?")
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    published = read_published(asked.tables) if asked.tables else []
    fitted = fit_rows(read_table(asked.rows).rows, published, asked.sample)
    for (place, name), value in fitted.values.items():
        print(f"{place:32} {name:28} {value:10.4g} +- {fitted.spread[place, name]:.2g}")
    print(f"weighted error {fitted.error:.4f}")
    if asked.write:
        CEILINGS.write_text(rewritten(CEILINGS.read_text("utf-8"), fitted, settings()["bounds"]), "utf-8")


if __name__ == "__main__":
    main()
