"""``trtkit watch``: the checks of ``check-health`` over and over, as a table that moves."""

from __future__ import annotations

import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.check_health import parameter_of, questions_of
from trtllm_kit.cli.check_options import OPTIONS
from trtllm_kit.cli.live_screen import LiveScreen
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.streams import holds_every_letter
from trtllm_kit.printable import printable

if TYPE_CHECKING:
    from trtllm_kit.health.compiled import Question
    from trtllm_kit.health.memory import Memory
    from trtllm_kit.health.verdict import Verdict

WIDTH = 32
"""Rounds that a line of bars shows."""
_NOT_HERE = {"once", "state", "samples", "prom", "exec", "webhook", "explain"}


class Seen:
    """What has been seen of each target and number."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], deque[float | None]] = {}

    def rows(self, verdicts: list[Verdict]) -> Iterator[list[str]]:
        """Add a round, and return a row for each number of each target."""
        from trtllm_kit.health.ranges import format_number
        from trtllm_kit.health.spark import BARS, PLAIN, sparkline

        bars = BARS if holds_every_letter(sys.stdout) else PLAIN
        for verdict in verdicts:
            target = verdict.name or verdict.url
            state = verdict.state.value
            for measure in verdict.measures:
                values = self.numbers.setdefault((target, measure.label), deque(maxlen=WIDTH))
                values.append(measure.value)
                high = 1.0 if measure.unit.value == "ratio" else None
                number = "U" if measure.value is None else format_number(measure.value)
                healthy = measure.critical or measure.warning
                yield [target, state, measure.label, number, healthy, sparkline(list(values), 0.0, high, bars)]
                target = state = ""


def watch(context: typer.Context, count: int | None = None, **given: Any) -> int:
    """Watch servers: the state and every number that is judged, with what they were before."""
    from trtllm_kit.health.check import Pace
    from trtllm_kit.health.memory import NOTHING
    from trtllm_kit.health.verdict import worst

    session: Session = context.obj
    asked = {option.name: given.get(option.name, option.default) for option in OPTIONS}
    asked |= {option.name: tuple(asked[option.name] or ()) for option in OPTIONS if option.many}
    questions, _ = questions_of(asked)
    Pace(1, asked["interval"], asked["timeout"]).checked()
    pace = Pace(1, 0.0, asked["timeout"])
    memories: list[Memory] = [NOTHING] * len(questions)
    seen, rounds, verdicts = Seen(), 0, list[Any]()
    with LiveScreen(plain=session.json) as screen:
        while count is None or rounds < count:
            begun = time.monotonic()
            verdicts, memories = _round(questions, pace, memories)
            rounds += 1
            screen.draw(_shown(session, seen, verdicts))
            if not screen.is_read:
                break
            if rounds != count:
                screen.pause(begun + asked["interval"] - time.monotonic())
    return worst(verdict.state for verdict in verdicts).exit_code


def _round(questions: list[Question], pace: Any, memories: list[Memory]) -> tuple[list[Any], list[Memory]]:
    """Check every target once, side by side."""
    from trtllm_kit.health.check import looked_at
    from trtllm_kit.health.fleet import in_threads

    made: dict[int, tuple[Verdict, Memory]] = {}

    def one(number: int) -> None:
        target, ruleset = questions[number]
        made[number] = looked_at(target, ruleset, pace, memories[number])

    in_threads(one, range(len(questions)))
    pairs = [made[number] for number in range(len(questions))]
    return [verdict for verdict, _ in pairs], [memory for _, memory in pairs]


def _shown(session: Session, seen: Seen, verdicts: list[Verdict]) -> Callable[[], str]:
    """Return what writes one round: a table and what is not well, or one line of JSON where that is wanted."""
    if session.json:
        import json

        from trtllm_kit.health.report import as_json

        line = json.dumps([as_json(verdict) for verdict in verdicts])
        return lambda: line
    heads = ("target", "state", "number", "now", "healthy", "before")
    rows = list(seen.rows(verdicts))
    wrong = [
        printable(f"{verdict.name or verdict.url}: {finding.title}: {finding.message}")
        for verdict in verdicts
        for finding in verdict.findings
        if finding.state.value != "OK"
    ]
    return lambda: "\n".join([table(heads, rows), *wrong])


_SHOWN = [parameter_of(option) for option in OPTIONS if option.name not in _NOT_HERE]
_COUNT = Annotated[int | None, typer.Option("--count", min=1, help="Rounds after which it ends; else it goes on.")]
watch.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # the options of check-health, defined once
    [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        inspect.Parameter("count", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_COUNT),
        *_SHOWN,
    ],
    return_annotation=int,
)
watch.__annotations__ = {"context": typer.Context, "count": _COUNT, "return": int} | {
    parameter.name: parameter.annotation for parameter in _SHOWN
}
