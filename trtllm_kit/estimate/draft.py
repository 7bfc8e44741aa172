"""How many tokens to draft: from a measured table, from acceptance and cost, from live counts; by batch size.

A step with drafts takes the drafted tokens that the model agrees with, up to the first it does not, and one token of
the model's own:

    speed-up = (1 + accepted tokens a step) / (1 + overhead)

where the overhead is the extra time of such a step over one without drafts: drafting, and checking more rows.
``draft_batches`` asks a clock for the second part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal

from trtllm_kit.errors import UsageError
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.upstream.speculation import Kind, speculation_field

Source = Literal["measured", "computed"]
TOLERANCE = 0.005
"""Accepted tokens within which two figures count as equal: tables print two digits."""


@dataclass(frozen=True)
class DraftRow:
    """One row of a table that somebody measured."""

    length: int
    """Tokens drafted a step."""
    accepted: float
    """Drafted tokens that the model took a step, 0 to ``length``, the model's own token not among them."""
    overhead: float | None = None
    """Extra time of a step as a share of a step without drafts, e.g. 0.12."""
    speedup: float | None = None
    """Tokens a second over those without drafts."""


@dataclass(frozen=True)
class DraftLength:
    """One draft length, judged; length 0 is speculation switched off."""

    length: int
    accepted: float
    overhead: float | None
    speedup: float
    source: Source


OFF = DraftLength(0, 0.0, 0.0, 1.0, "computed")


@dataclass(frozen=True)
class DraftAnswer:
    """The best draft length of those judged."""

    best: DraftLength
    lengths: tuple[DraftLength, ...]
    """Every length by ascending length, ``OFF`` first; measured where the table has a measured column."""
    computed: tuple[DraftLength, ...] = ()
    """The same from accepted tokens and overhead alone, where a measured column stands beside them."""
    findings: tuple[Finding, ...] = ()


def from_table(rows: Iterable[DraftRow]) -> DraftAnswer:
    """Return the best length of a measured table: by its measured speed-ups where every row has one.

    A measured column that accepted tokens and overhead contradict, and accepted tokens that no single chain of drafts
    gives, are findings. Raises ``UsageError`` for a table that cannot be read as one.
    """
    table = sorted(rows, key=lambda row: row.length)
    _refuse_unreadable(table)
    computed = tuple(_computed(row) for row in table if row.overhead is not None)
    measured = tuple(
        DraftLength(row.length, row.accepted, row.overhead, row.speedup, "measured")
        for row in table
        if row.speedup is not None
    )
    lengths = (OFF, *(measured or computed))
    beside = (OFF, *computed) if measured and len(computed) == len(measured) else ()
    findings = [*_impossible_steps(table), *_contradiction(lengths, beside)]
    return DraftAnswer(_best(lengths), lengths, beside, tuple(findings))


def from_acceptance(acceptance: Sequence[float], overheads: Sequence[float]) -> DraftAnswer:
    """Return the best length from the chance of each position and the overhead of each length, from 1 up.

    ``acceptance[k]`` is the chance that the draft token at position k (from 0) is taken when all before it were.
    """
    _refuse_chances(acceptance)
    if len(acceptance) != len(overheads):
        raise UsageError(
            f"{len(overheads)} overheads for {len(acceptance)} positions",
            why=f"each length from 1 to {len(acceptance)} has an overhead of its own",
            hint="give one overhead for each position",
        )
    rows = [
        DraftRow(length, accepted_tokens(acceptance, length), overhead)
        for length, overhead in enumerate(overheads, start=1)
    ]
    return from_table(rows)


def accepted_tokens(acceptance: Sequence[float], length: int) -> float:
    """Return the draft tokens that a step takes on average, when ``length`` are drafted: the sum of p1, p1 p2, ..."""
    reached: Iterable[float] = accumulate(acceptance[:length], mul)
    return sum(reached)


def acceptance_of_counts(drafted: Sequence[int], accepted: Sequence[int]) -> tuple[float, ...]:
    """Return the chance of each position from live counters by position, given that all before it were taken.

    ``drafted`` and ``accepted`` are tokens since the start, by position from 0. A position that was never reached
    ends the list. Raises ``UsageError`` when more was accepted than drafted, or than accepted one position before.
    """
    chances: list[float] = []
    reached: int | None = None
    for position, (tried, taken) in enumerate(zip(drafted, accepted, strict=True)):
        most = tried if reached is None else min(tried, reached)
        if taken > most:
            raise UsageError(
                f"position {position} took {taken:,} draft tokens",
                why=f"{tried:,} were drafted there, and {most:,} could be taken: a token counts when all before it do",
                hint="read drafted and accepted tokens of every position at the same moment",
            )
        if most == 0:
            break
        chances.append(taken / most)
        reached = taken
    return tuple(chances)


def release_keys(kind: Kind, release: str, length: int, break_even: int | None = None) -> dict[str, object]:
    """Return the fields of ``speculative_config`` that carry a length, and the batch above which it is switched off.

    A field that the release does not have, or fills in itself, is left out.
    """
    asked: dict[str, object] = {"max_draft_len": length, "num_nextn_predict_layers": length}
    if break_even is not None:
        asked["max_concurrency"] = break_even
    if kind != "mtp":
        del asked["num_nextn_predict_layers"]
    fields = {name: speculation_field(kind, name, release) for name in asked}
    return {name: asked[name] for name, field in fields.items() if field is not None and not field.internal}


def _computed(row: DraftRow) -> DraftLength:
    overhead = row.overhead or 0.0
    return DraftLength(row.length, row.accepted, overhead, (1 + row.accepted) / (1 + overhead), "computed")


def _best(lengths: Iterable[DraftLength]) -> DraftLength:
    """Return the quickest; of equals the shortest, which wastes least."""
    return max(lengths, key=lambda one: (one.speedup, -one.length))


def _impossible_steps(table: Sequence[DraftRow]) -> Iterable[Finding]:
    """Yield a finding when a later position adds more accepted tokens than an earlier one.

    A token counts only when all before it were taken, so in one chain what each further position adds can only fall.
    It needs every length from 1 up, since the difference of neighbours is what a position adds.
    """
    if [row.length for row in table] != list(range(1, len(table) + 1)):
        return
    steps = [after - before for before, after in pairwise([0.0, *(row.accepted for row in table)])]
    for position, (before, after) in enumerate(pairwise(steps), start=2):
        if after > before + TOLERANCE:
            yield Finding(
                rule="draft-chain",
                severity=Severity.WARNING,
                message=f"Position {position} adds {after:.2f} accepted tokens, position {position - 1} adds "
                f"{before:.2f}: no single chain of drafts does that.",
                compared=f"steps {', '.join(f'{step:.2f}' for step in steps)}; each must be at most the one before",
                suggestion="count accepted tokens by position on one text and one draft model",
            )


def _contradiction(lengths: Sequence[DraftLength], computed: Sequence[DraftLength]) -> Iterable[Finding]:
    """Yield a finding when a table's measured column and its other columns have different winners."""
    if not computed:
        return
    best, other = _best(lengths), _best(computed)
    if best.length != other.length:
        pairs = zip(lengths[1:], computed[1:], strict=True)
        compared = ", ".join(f"{one.length}: {one.speedup:.2f} and {two.speedup:.2f}" for one, two in pairs)
        yield Finding(
            rule="draft-table",
            severity=Severity.WARNING,
            message=f"The measured speed-up is best at length {best.length}; accepted tokens and overhead say "
            f"{other.length}.",
            compared=f"measured and computed by length, {compared}",
            suggestion="the measured column decides; measure the overhead again at the batch that will run",
        )


def _refuse_unreadable(table: Sequence[DraftRow]) -> None:
    if not table:
        raise UsageError("no draft length to judge", why="the table has 0 rows", hint="give at least one row")
    for before, after in pairwise(table):
        if before.length == after.length:
            raise UsageError(
                f"draft length {after.length} twice",
                why=f"accepted {before.accepted:g} in one row and {after.accepted:g} in the other",
                hint="keep one row a length",
            )
    for row in table:
        if row.length < 1 or not 0 <= row.accepted <= row.length:
            raise _too_many(row.length, row.accepted)
        if row.overhead is not None and row.overhead <= -1:
            raise UsageError(
                f"overhead {row.overhead:g} of draft length {row.length}",
                why="a step with drafts would take no time: the overhead is a share above -1",
                hint="give the extra time as a share, e.g. 0.12 for 12 %",
            )
    columns = {(row.overhead is None, row.speedup is None) for row in table}
    if len(columns) > 1 or columns == {(True, True)}:
        raise UsageError(
            f"a table of {len(table)} rows without a whole column to judge by",
            why="every row needs its overhead, or every row its measured speed-up",
            hint="fill in one of the two columns",
        )


def _too_many(length: int, accepted: float) -> UsageError:
    return UsageError(
        f"{accepted:g} accepted tokens at draft length {length}",
        why=f"a step takes 0 to {max(length, 0)} of {length} drafted tokens, and drafts at least 1",
        hint="count drafted tokens alone, without the model's own token",
    )


def _refuse_chances(acceptance: Sequence[float]) -> None:
    for position, chance in enumerate(acceptance, start=1):
        if not 0 <= chance <= 1:
            raise UsageError(
                f"acceptance {chance:g} at position {position}",
                why="it is the share of drafts taken when all before were: 0 to 1",
                hint="divide accepted tokens of the position by those of the one before",
            )
