"""Two deployments that were asked the same: prompt by prompt, how fast each was, and go or no-go with reasons. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from statistics import median
from typing import Any

from trtllm_kit.bench.compare import Compared
from trtllm_kit.errors import RequestFailed
from trtllm_kit.light import dataclass
from trtllm_kit.migrate.comparison.difference import Difference, Near, difference
from trtllm_kit.migrate.comparison.sides import OWN_WORDS, Said, Side
from trtllm_kit.migrate.comparison.speed import compared_speed

FEW = 5
"""From so many prompts on, one answer to all of them is no answer to any."""
Ids = Callable[[str], list[int]]
"""Gives the tokens of a text."""


class Outcome(StrEnum):
    """What became of one prompt."""

    SAME = "same"
    NEAR = "near"
    DIFFERENT = "different"
    REFUSED = "refused by both"
    """Both servers say no to it: nothing is compared, and nothing changes."""
    OLD_FAILED = "failed on the old side"
    NEW_FAILED = "failed on the new side"
    BOTH_FAILED = "failed on both sides"


@dataclass(frozen=True)
class Rules:
    """What the operator lets pass."""

    near: frozenset[Near] = frozenset()
    """Known differences that are no reason against the new deployment."""
    different: int = 0
    """Prompts whose answers may differ in what they say."""
    slower: float | None = None
    """By which share the new deployment may be slower; None: speed is shown and not judged."""


@dataclass(frozen=True)
class Row:
    """One prompt with both answers."""

    number: int
    """From 1."""
    prompt: str
    outcome: Outcome
    difference: Difference | None
    """None where one of the answers is missing."""
    old: Said
    new: Said


@dataclass(frozen=True)
class Verdict:
    """Go, or no-go with its reasons."""

    rows: tuple[Row, ...]
    reasons: tuple[str, ...]
    """Why the new deployment does not answer as the old one does; empty is go."""
    notes: tuple[str, ...]
    """What else to know of the comparison."""
    speed: Compared
    sides: tuple[Side, Side]

    @property
    def go(self) -> bool:
        """Whether nothing speaks against the new deployment."""
        return not self.reasons

    def counts(self) -> dict[str, int]:
        """Return how many prompts had each outcome, and how many there are."""
        found = Counter(row.outcome for row in self.rows)
        return {"asked": len(self.rows)} | {str(outcome): found[outcome] for outcome in Outcome}

    def first(self, outcome: Outcome, most: int) -> list[Row]:
        """Return the first prompts of an outcome."""
        return [row for row in self.rows if row.outcome is outcome][:most]


def verdict_of(prompts: Sequence[str], old: Side, new: Side, rules: Rules, ids: Ids | None = None) -> Verdict:
    """Hold the new deployment against the old one; ``ids`` gives the tokens of a text, to say which differs first.

    Raises ``RequestFailed`` where the old side answered no prompt: there is nothing to compare with.
    """
    if not old.answered():
        raise RequestFailed(
            f"the old deployment at {old.place} answered none of {len(prompts)} prompts",
            why=next(f"{said.failure}: {said.why}" for said in old.whole),
            hint="correct --api-old and --model-old, or the prompts",
        )
    rows = tuple(
        _row(number, prompt, said, answer, ids)
        for number, (prompt, said, answer) in enumerate(zip(prompts, old.whole, new.whole, strict=True), 1)
    )
    same = frozenset(row.number - 1 for row in rows if row.outcome is Outcome.SAME)
    speed, doubts = compared_speed(old.measured, new.measured, same, rules.slower)
    reasons = (
        *_of_old(old),
        *_of_new(new, rules),
        *_of_answers(rows, rules),
        *_of_streams(new),
        *_of_speed(speed),
    )
    return Verdict(rows, reasons, (*_notes(rows, old, new, rules), *doubts), speed, (old, new))


def _row(number: int, prompt: str, old: Said, new: Said, ids: Ids | None) -> Row:
    if old.failure or new.failure:
        return Row(number, prompt, _failed(old, new), None, old, new)
    found = difference(old.text, new.text, prompt, ids)
    return Row(number, prompt, Outcome(found.likeness), found, old, new)


def _failed(old: Said, new: Said) -> Outcome:
    if not new.failure:
        return Outcome.OLD_FAILED
    if not old.failure:
        return Outcome.NEW_FAILED
    both_say_no = old.failure in OWN_WORDS and new.failure in OWN_WORDS
    return Outcome.REFUSED if both_say_no else Outcome.BOTH_FAILED


def _of_old(old: Side) -> Iterator[str]:
    """Yield why equality with the old side would prove nothing."""
    unsteady, texts = old.unsteady(), {said.text for said in old.whole if not said.failure}
    if old.silent():
        yield "the old deployment answers every prompt with an empty text: there is nothing to compare with"
    elif len(texts) == 1 and len(old.whole) >= FEW:
        yield "the old deployment answers every prompt with one and the same text: equality proves nothing"
    if unsteady:
        yield (
            f"the old deployment disagrees with itself on {len(unsteady)} of {len(old.twice)} prompts asked again "
            f"(first: prompt {unsteady[0] + 1}): equality proves nothing; try --concurrency 1"
        )


def _of_new(new: Side, rules: Rules) -> Iterator[str]:
    unsteady = new.unsteady()
    if new.silent():
        yield "the new deployment answers every prompt with an empty text"
    if len(unsteady) > rules.different:
        yield (
            f"the new deployment disagrees with itself on {len(unsteady)} of {len(new.twice)} prompts asked again "
            f"(first: prompt {unsteady[0] + 1})"
        )
    apart = new.apart()
    if len(apart) > rules.different:
        yield f"the new deployment streams another text than it answers whole: {len(apart)} prompts, first {apart[0]}"


def _of_answers(rows: Sequence[Row], rules: Rules) -> Iterator[str]:
    different = [row.number for row in rows if row.outcome is Outcome.DIFFERENT]
    if len(different) > rules.different:
        allowed = f"; --allow-different {rules.different}" if rules.different else ""
        yield f"{len(different)} of {len(rows)} answers differ (first: prompt {different[0]}){allowed}"
    near = [row for row in rows if row.outcome is Outcome.NEAR and row.difference is not None]
    for way in Near:
        numbers = [row.number for row in near if row.difference and way in row.difference.near]
        if numbers and way not in rules.near:
            yield f"{len(numbers)} answers differ by {way} (first: prompt {numbers[0]}); --allow {way} lets it pass"
    for outcome in (Outcome.OLD_FAILED, Outcome.NEW_FAILED, Outcome.BOTH_FAILED):
        failed = [row for row in rows if row.outcome is outcome]
        if failed:
            yield f"{len(failed)} prompts {outcome} (first: prompt {failed[0].number}, {_why(failed[0])})"
    if all(row.outcome is Outcome.REFUSED for row in rows):
        yield "both sides refuse every prompt: nothing was compared"


def _why(row: Row) -> str:
    said = row.new if row.new.failure else row.old
    return f"{said.failure}: {said.why}"


def _of_streams(side: Side) -> Iterator[str]:
    """Yield what fails in pieces although whole answers come."""
    pairs = enumerate(zip(side.streamed, side.whole, strict=False), 1)
    failed = [(number, said) for number, (said, whole) in pairs if said.failure and not whole.failure]
    if failed:
        number, said = failed[0]
        yield (
            f"{len(failed)} streams of the {side.name} deployment fail whose whole answers come "
            f"(first: prompt {number}, {said.failure}: {said.why})"
        )


def _of_speed(speed: Compared) -> Iterator[str]:
    for row in speed.broken:
        yield f"{row.name} is worse by {row.worse_by:.1%} ({row.a:.4g} and {row.b:.4g}); allowed {row.limit:.0%}"


def _notes(rows: Sequence[Row], old: Side, new: Side, rules: Rules) -> Iterator[str]:
    refused = [row.number for row in rows if row.outcome is Outcome.REFUSED]
    if refused:
        yield f"both sides refuse {len(refused)} prompts (first: prompt {refused[0]}): they prove nothing"
    shared = [
        (row.difference.character or 0) / max(len(row.old.text), 1)
        for row in rows
        if row.outcome is Outcome.DIFFERENT and row.difference is not None
    ]
    if shared:
        yield f"answers that differ share the first {min(median(shared), 1):.0%} of the old text at the median"
    garbled = [row.number for row in rows if row.outcome is Outcome.SAME and "\ufffd" in row.old.text.rstrip("\ufffd")]
    if garbled:
        yield f"{len(garbled)} equal answers hold replacement characters, which may hide a difference"
    apart = old.apart()
    if apart:
        yield (
            f"the old deployment streams another text than it answers whole: {len(apart)} prompts, first {apart[0]} "
            "(an ensemble decodes each piece by itself); whole answers were compared"
        )
    yield from _of_streams(old)
    for side in (old, new):
        repeating = side.repeating()
        if repeating:
            yield (
                f"each piece of a stream of the {side.name} deployment repeats all text before it "
                f"({len(repeating)} prompts, first {repeating[0]}): clients take the last one"
            )
    yield from _token_notes(old, new)
    if rules.slower is None:
        yield "speed is shown and not judged: --slower-by 10% judges it"


def _token_notes(old: Side, new: Side) -> Iterator[str]:
    pairs = enumerate(zip(old.whole, new.whole, strict=True), 1)
    counts = [(number, one.prompt_tokens, other.prompt_tokens) for number, (one, other) in pairs]
    known = [(number, one, other) for number, one, other in counts if one is not None and other is not None]
    apart = [(number, one, other) for number, one, other in known if one != other]
    if apart:
        number, one, other = apart[0]
        yield (
            f"{len(apart)} of {len(known)} prompts have another number of tokens "
            f"(first: prompt {number}, {one} old and {other} new): the sides do not tokenise alike"
        )


def document_of(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON shows it: every prompt that is not the same on both sides, with both answers."""
    old, new = verdict.sides
    return {
        "kind": "trtkit-migrate-compare",
        "version": 1,
        "verdict": "go" if verdict.go else "no-go",
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
        "old": {"place": old.place, "api": old.api, "model": old.model},
        "new": {"place": new.place, "api": new.api, "model": new.model},
        "prompts": verdict.counts(),
        "differences": [_document(row) for row in verdict.rows if row.outcome is not Outcome.SAME],
        "speed": verdict.speed.document(),
    }


def _document(row: Row) -> dict[str, Any]:
    made: dict[str, Any] = {"prompt": row.number, "text": row.prompt, "outcome": str(row.outcome)}
    for name, said in (("old", row.old), ("new", row.new)):
        made[name] = {"failure": said.failure, "why": said.why} if said.failure else {"answer": said.text}
    found = row.difference
    if found is not None:
        made |= {"near": list(found.near), "character": found.character, "token": found.token}
    return made
