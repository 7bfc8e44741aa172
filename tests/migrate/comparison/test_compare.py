"""Go or no-go, out of what two deployments said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.bench.support import record
from trtllm_kit.bench.lag import Lag
from trtllm_kit.bench.record import Counted, Failure, Record
from trtllm_kit.errors import RequestFailed
from trtllm_kit.migrate.comparison.compare import Outcome, Rules, Verdict, document_of, verdict_of
from trtllm_kit.migrate.comparison.difference import Near
from trtllm_kit.migrate.comparison.sides import Measured, Said, Side
from trtllm_kit.migrate.comparison.speed import evened

PROMPTS = tuple(f"prompt {number}" for number in range(6))
ANSWERS = tuple(f"answer {number}" for number in range(6))
REFUSED = Said(failure="status", why="status 400: too long")
TIMED_OUT = Said(failure="stalled", why="nothing for 60 s")


def side(name: str, answers: Sequence[str | Said] = ANSWERS, **more: Any) -> Side:
    """Return a deployment that gave these answers, whole, in pieces and twice."""
    said = tuple(one if isinstance(one, Said) else Said(one) for one in answers)
    pace = more.pop("pace", 0.01)
    records = tuple(
        record(number, 0.0, (pace, 2 * pace, 3 * pace)) if not one.failure
        else record(number, 0.0, (), failure=Failure(one.failure))
        for number, one in enumerate(said)
    )  # fmt: skip
    usual = {
        "place": f"{name}:8000", "api": "triton", "model": "m", "twice": tuple(zip(said[:2], said[:2], strict=True)),
        "whole": said, "streamed": said, "measured": Measured(records, Lag(0.0, 0.0, 0.0, 0.0, 0.1), streams=True),
    }  # fmt: skip
    return Side(name, **usual | more)


def judged(old: Side, new: Side, **rules: Any) -> Verdict:
    """Return the verdict on them."""
    return verdict_of(PROMPTS, old, new, Rules(**rules))


def changed(number: int, said: str | Said) -> list[str | Said]:
    """Return the answers, one of them another."""
    return [said if at == number else answer for at, answer in enumerate(ANSWERS)]


def test_equal_answers_are_go() -> None:
    """Where every answer is the same there is no reason against the new deployment."""
    verdict = judged(side("old"), side("new"))
    assert (True, (), 6) == (verdict.go, verdict.reasons, verdict.counts()["same"])
    assert ("go", []) == (document_of(verdict)["verdict"], document_of(verdict)["differences"])


def test_one_other_answer_is_no_go_and_where() -> None:
    """The reason names the prompt, and the document both answers and the place."""
    verdict = judged(side("old"), side("new", changed(3, "answer x")))
    assert ("1 of 6 answers differ (first: prompt 4)",) == verdict.reasons
    assert [
        {
            "prompt": 4,
            "text": "prompt 3",
            "outcome": "different",
            "old": {"answer": "answer 3"},
            "new": {"answer": "answer x"},
            "near": [],
            "character": 7,
            "token": None,
        }
    ] == document_of(verdict)["differences"]


def test_how_much_differing_answers_share_is_told() -> None:
    """Of two answers that part at 7 and 4 of 8 characters, the median shares 69 % with the old text."""
    said = [*ANSWERS[:4], "answer x", "answ"]
    verdict = judged(side("old"), side("new", said))
    assert "answers that differ share the first 69% of the old text at the median" in verdict.notes
    assert not any("share" in note for note in judged(side("old"), side("new")).notes)


@pytest.mark.parametrize(("allowed", "go"), [(0, False), (1, True)])
def test_so_many_may_differ_as_are_allowed(allowed: int, go: bool) -> None:
    """The operator's number is the limit, and it is met by as many."""
    assert go is judged(side("old"), side("new", changed(3, "answer x")), different=allowed).go


def test_a_known_difference_is_no_go_unless_it_is_allowed() -> None:
    """Each kind is allowed by its own name, and by no other."""
    new = side("new", changed(3, "answer 3</s>"))
    verdicts = [judged(side("old"), new, near=frozenset(near)) for near in ((), (Near.TRAILING,), (Near.SPECIAL,))]
    assert [False, False, True] == [verdict.go for verdict in verdicts]
    assert ("1 answers differ by special-token (first: prompt 4); --allow special-token lets it pass",) == (
        verdicts[0].reasons
    )
    assert {1} == {verdict.counts()["near"] for verdict in verdicts}


def test_allowing_other_answers_allows_no_known_difference() -> None:
    """--allow-different counts answers that say something else, and those alone."""
    assert not judged(side("old"), side("new", changed(3, "answer 3 ")), different=6).go


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("answer 3", TIMED_OUT, Outcome.NEW_FAILED),
        (TIMED_OUT, "answer 3", Outcome.OLD_FAILED),
        (TIMED_OUT, REFUSED, Outcome.BOTH_FAILED),
    ],
)
def test_a_missing_answer_is_no_go(old: str | Said, new: str | Said, outcome: Outcome) -> None:
    """Unless both servers say no by themselves, an answer that is missing on a side is counted and is a reason."""
    verdict = judged(side("old", changed(3, old)), side("new", changed(3, new)))
    assert (False, 1, 5) == (verdict.go, verdict.counts()[outcome], verdict.counts()["same"])
    assert str(outcome) in verdict.reasons[0]


def test_a_prompt_that_both_refuse_changes_nothing() -> None:
    """It is told of and is no reason; when there is no other prompt, nothing was compared."""
    both = [side(name, changed(3, REFUSED)) for name in ("old", "new")]
    verdict = judged(*both)
    assert (True, 1) == (verdict.go, verdict.counts()[Outcome.REFUSED])
    assert any("both sides refuse 1 prompts" in note for note in verdict.notes)


def test_an_old_side_without_an_answer_is_nothing_to_compare_with() -> None:
    """It is not a verdict: the comparison could not be made."""
    with pytest.raises(RequestFailed, match="answered none of 6 prompts"):
        judged(side("old", [REFUSED] * 6), side("new"))


def test_a_new_side_without_an_answer_is_no_go() -> None:
    """It was asked, and it fails where the old one answers."""
    verdict = judged(side("old"), side("new", [REFUSED] * 6), slower=0.1)
    assert (False, 6) == (verdict.go, verdict.counts()[Outcome.NEW_FAILED])


def test_empty_answers_to_all_are_no_go_on_either_side() -> None:
    """Both empty are equal, and prove nothing; a single empty answer is one like any other."""
    empty = [""] * 6
    found = [judged(side("old", empty), side("new", empty)), judged(side("old"), side("new", empty))]
    assert [False, False] == [verdict.go for verdict in found]
    assert "empty text" in found[0].reasons[0]
    assert judged(side("old", changed(3, "")), side("new", changed(3, ""))).go


def test_one_answer_to_every_prompt_is_no_go() -> None:
    """A deployment that says the same to everything is no evidence of its model."""
    assert not judged(side("old", ["yes"] * 6), side("new", ["yes"] * 6)).go


def test_an_old_side_that_disagrees_with_itself_is_no_go() -> None:
    """Equality proves nothing then, however many answers may differ."""
    twice = ((Said("answer 0"), Said("answer 0")), (Said("answer 1"), Said("another")))
    verdict = judged(side("old", twice=twice), side("new"), different=6)
    assert not verdict.go
    assert "disagrees with itself on 1 of 2 prompts asked again (first: prompt 2)" in verdict.reasons[0]


def test_a_new_side_that_disagrees_with_itself_is_no_go() -> None:
    """As many may as answers may differ."""
    twice = ((Said("answer 0"), Said("answer 0")), (Said("answer 1"), Said("another")))
    found = [judged(side("old"), side("new", twice=twice), different=different).go for different in (0, 1)]
    assert [False, True] == found


def test_what_failed_the_first_time_is_no_other_answer() -> None:
    """A request that failed says nothing about what the answer would have been."""
    assert judged(side("old", twice=((TIMED_OUT, Said("answer 0")),)), side("new")).go


def test_streams_that_say_something_else_are_no_go_on_the_new_side() -> None:
    """An old ensemble that garbles its pieces is told of; a new deployment that does so is not let in."""
    apart = tuple(map(Said, changed(3, "answ\ufffd 3")))
    old, new = judged(side("old", streamed=apart), side("new")), judged(side("old"), side("new", streamed=apart))
    assert (True, False) == (old.go, new.go)
    assert any("old deployment streams another text" in note for note in old.notes)
    assert ("the new deployment streams another text than it answers whole: 1 prompts, first 4",) == new.reasons


def test_a_stream_that_repeats_itself_is_read_both_ways() -> None:
    """Pieces that each hold all text so far are told of; pieces of one letter only look so, and are joined."""
    repeats = tuple(Said(text, joined=f"an{text}") for text in ANSWERS)
    alike = ["aaa", *ANSWERS[1:]]
    looks_so = (Said("aa", joined="aaa"), *map(Said, ANSWERS[1:]))
    told, quiet = (
        judged(side("old", said), side("new", said, streamed=streamed))
        for said, streamed in ((ANSWERS, repeats), (alike, looks_so))
    )
    assert (True, True) == (told.go, quiet.go)
    assert any("new deployment repeats all text before it (6 prompts, first 1)" in note for note in told.notes)
    assert not any("repeats" in note for note in quiet.notes)


def test_streams_that_fail_are_no_go_on_the_new_side() -> None:
    """Whole answers do not make up for them."""
    broken = tuple(one if isinstance(one, Said) else Said(one) for one in changed(3, TIMED_OUT))
    assert (True, False) == (
        judged(side("old", streamed=broken), side("new")).go,
        judged(side("old"), side("new", streamed=broken)).go,
    )


def test_equal_texts_with_replacement_characters_are_told_of() -> None:
    """They stand for bytes that are no text, of which several look the same; at an end they are a cut character."""
    garbled, cut = ["a\ufffdb", *ANSWERS[1:]], ["ab\ufffd", *ANSWERS[1:]]
    found = [judged(side("old", said), side("new", said)) for said in (garbled, cut)]
    assert [True, False] == [any("replacement characters" in note for note in verdict.notes) for verdict in found]


def test_prompts_of_another_length_in_tokens_are_told_of() -> None:
    """Where both sides' tokens are counted and the counts differ, the first prompt is named with both."""
    old, new = (side(name, [Said(text, prompt_tokens=count) for text in ANSWERS]) for name, count in
                (("old", 7), ("new", 8)))  # fmt: skip
    assert any("prompt 1, 7 old and 8 new" in note for note in judged(old, new).notes)
    assert not any("tokenise" in note for note in judged(old, old).notes)


@pytest.mark.parametrize(("limit", "go"), [(None, True), (0.1, False), (1.2, True)])
def test_a_slower_side_is_no_go_past_the_limit(limit: float | None, go: bool) -> None:
    """Twice as slow is within 120 %, past 10 %, and shown only where nobody sets a limit."""
    verdict = judged(side("old"), side("new", pace=0.02), slower=limit)
    assert go is verdict.go
    assert {"e2e.p50"} <= {row.name for row in verdict.speed.rows if 0.9 < row.change < 1.1}


def test_a_faster_side_breaks_no_limit() -> None:
    """A limit is for what became worse."""
    assert judged(side("old"), side("new", pace=0.001), slower=0.0).go


def test_whole_answers_are_judged_as_a_whole() -> None:
    """Where a side was not asked for pieces no figure is about pieces."""
    whole = Measured(side("old").measured.records, Lag(0.0, 0.0, 0.0, 0.0, 0.1), streams=False)
    verdict = judged(side("old", streamed=(), measured=whole), side("new"))
    assert ["e2e.p50", "e2e.p99", "requests_per_second"] == [row.name for row in verdict.speed.rows]


def test_equal_answers_have_one_count_of_tokens() -> None:
    """The surer source counts for both, of prompts whose answers are the same and of no others."""

    def of(counted: Counted, tokens: int) -> tuple[Record, ...]:
        return tuple(record(number, counted=counted, answer=tokens) for number in range(2))

    found = evened(of(Counted.PIECES, 3), of(Counted.LIMIT, 5), frozenset({1}))
    assert [[3, 5], [5, 5]] == [[one.answer for one in records] for records in found]


def test_tokens_counted_in_two_ways_are_not_judged() -> None:
    """Rates of tokens are left out of the limit then, and it is said."""
    new = side("new", changed(0, "other"), pace=0.02)
    records = tuple(
        record(one.number, 0.0, one.stamps, counted=Counted.LIMIT, answer=1) for one in new.measured.records
    )
    slow = side("new", changed(0, "other"), measured=Measured(records, Lag(0.0, 0.0, 0.0, 0.0, 0.1), streams=True))
    verdict = judged(side("old", [f"{answer}." for answer in ANSWERS]), slow, slower=0.1, different=6)
    limits = {row.name: row.limit for row in verdict.speed.rows}
    assert (0.1, None) == (limits["e2e.p50"], limits["output_tokens_per_second"])
    assert any("not judged; --tokenizer counts both" in note for note in verdict.notes)
