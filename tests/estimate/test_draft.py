"""How many tokens to draft: tables, acceptance, live counts, batch sizes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.estimate.replicas import Straight
from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.draft import (
    DraftRow,
    acceptance_of_counts,
    accepted_tokens,
    from_acceptance,
    from_table,
    release_keys,
)
from trtllm_kit.estimate.draft_batches import BatchAnswer, DraftCost, at_batch, by_batch, ladder, schedule_keys

ACCEPTED = (0.82, 1.47, 2.16, 2.71)
OVERHEAD = (0.12, 0.18, 0.23, 0.31)
SPEEDUP = (1.31, 1.89, 2.52, 2.17)


def table(*, measured: bool = True, overhead: bool = True) -> list[DraftRow]:
    """Return the published table of Llama 4 Maverick, with or without some of its columns."""
    columns = zip((1, 2, 3, 4), ACCEPTED, OVERHEAD, SPEEDUP, strict=True)
    return [DraftRow(k, taken, more if overhead else None, up if measured else None) for k, taken, more, up in columns]


def test_measured_column_decides() -> None:
    """With its measured speed-ups the published table is best at length 3."""
    assert 3 == from_table(table()).best.length


def test_accepted_and_overhead_alone() -> None:
    """From accepted tokens and overheads alone the same table is best at 4: 3.71 tokens in 1.31 of the time."""
    best = from_table(table(measured=False)).best
    assert (4, pytest.approx(3.71 / 1.31)) == (best.length, best.speedup)


def test_contradiction_is_told() -> None:
    """A measured column with another winner than the other columns is a finding that names both lengths."""
    found = [finding for finding in from_table(table()).findings if finding.rule == "draft-table"]
    assert ["The measured speed-up is best at length 3; accepted tokens and overhead say 4."] == [
        finding.message for finding in found
    ]


@pytest.mark.parametrize("measured", [True, False])
def test_impossible_steps_are_told(measured: bool) -> None:
    """Steps of 0.82, 0.65, 0.69 and 0.55 accepted tokens are of no single chain: the third is above the second."""
    found = [finding for finding in from_table(table(measured=measured)).findings if finding.rule == "draft-chain"]
    assert ["steps 0.82, 0.65, 0.69, 0.55; each must be at most the one before"] == [one.compared for one in found]


def test_possible_steps_are_not() -> None:
    """A table whose positions add less and less, and whose columns agree, has no finding."""
    rows = [DraftRow(1, 0.8, 0.1, 1.6), DraftRow(2, 1.4, 0.2, 2.0), DraftRow(3, 1.7, 0.4, 1.9)]
    assert () == from_table(rows).findings


def test_gaps_in_the_lengths_prove_nothing() -> None:
    """Lengths 2 and 4 alone say nothing of single positions, so no chain is called impossible."""
    assert () == from_table([DraftRow(2, 1.0, 0.1), DraftRow(4, 2.4, 0.2)]).findings


def test_only_measured_speedups() -> None:
    """A table without overheads is judged by its measured column, with nothing to compare it to."""
    answer = from_table(table(overhead=False))
    assert (3, ()) == (answer.best.length, answer.computed)


def test_off_when_nothing_pays() -> None:
    """When every length is slower than none, the best length is 0 with a speed-up of 1."""
    best = from_table([DraftRow(1, 0.1, 0.5), DraftRow(2, 0.15, 0.9)]).best
    assert (0, 1.0) == (best.length, best.speedup)


def test_shortest_of_equals() -> None:
    """Of two lengths that are as quick the shorter is taken."""
    assert 1 == from_table([DraftRow(1, 1.0, 0.0), DraftRow(2, 2.0, 0.5)]).best.length


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no draft length"),
        ([DraftRow(2, 2.1, 0.1)], "2.1 accepted tokens at draft length 2"),
        ([DraftRow(2, -0.1, 0.1)], "-0.1 accepted tokens"),
        ([DraftRow(0, 0.0, 0.1)], "draft length 0"),
        ([DraftRow(1, 0.5, 0.1), DraftRow(1, 0.6, 0.1)], "draft length 1 twice"),
        ([DraftRow(1, 0.5, -1.0)], "overhead -1"),
        ([DraftRow(1, 0.5)], "without a whole column"),
        ([DraftRow(1, 0.5, 0.1), DraftRow(2, 0.6, None, 1.2)], "without a whole column"),
    ],
)
def test_unreadable_tables(rows: list[DraftRow], says: str) -> None:
    """A table that contradicts what a row can be is refused with the value."""
    with pytest.raises(UsageError, match=says):
        from_table(rows)


def test_accepted_tokens_of_a_chain() -> None:
    """A position counts when all before it were taken: 0.8 + 0.8 x 0.5 tokens at length 2."""
    assert pytest.approx(1.2) == accepted_tokens((0.8, 0.5, 0.9), 2)


def test_from_acceptance() -> None:
    """0.8, 0.7, 0.1 by position at 5 % a token is best at length 2: the third adds 0.056 tokens for 5 % more."""
    assert 2 == from_acceptance((0.8, 0.7, 0.1), (0.05, 0.10, 0.15)).best.length


def test_acceptance_above_one() -> None:
    """An acceptance of 1.2 is refused."""
    with pytest.raises(UsageError, match=r"acceptance 1\.2 at position 1"):
        from_acceptance((1.2,), (0.1,))


def test_an_overhead_for_each_position() -> None:
    """Two overheads for three positions are refused."""
    with pytest.raises(UsageError, match="2 overheads for 3 positions"):
        from_acceptance((0.8, 0.7, 0.6), (0.1, 0.2))


def test_counts_by_position() -> None:
    """1,000 drafts of which 800, 480 and 240 were taken by position have chances 0.8, 0.6 and 0.5."""
    assert (0.8, 0.6, 0.5) == acceptance_of_counts((1000, 1000, 1000), (800, 480, 240))


def test_counts_end_where_nothing_came() -> None:
    """A position that no draft reached has no chance."""
    assert (0.0,) == acceptance_of_counts((10, 10), (0, 0))


def test_counts_that_cannot_be() -> None:
    """More taken at a position than one before it is refused."""
    with pytest.raises(UsageError, match="position 1 took 900"):
        acceptance_of_counts((1000, 1000), (800, 900))


def test_more_accepted_than_drafted() -> None:
    """A row with a mean of 3.5 of 3 drafts is refused."""
    with pytest.raises(UsageError, match=r"3\.5 accepted tokens at draft length 3"):
        from_table([DraftRow(3, 3.5)])


def test_break_even_is_exact() -> None:
    """The break-even is the largest batch that pays: there it still does, one request above it does not."""
    clock, chances, cost = Straight(), (0.3, 0.2), DraftCost(seconds=2e-3, share=0.02)
    clock.DRAFT = 1e-4
    found = by_batch(clock, chances, (1, 8, 64, 512), 1000, cost)
    pays = [at_batch(clock, chances, found.break_even + more, 1000, cost).best.length > 0 for more in (0, 1)]
    assert (True, False, False) == (*pays, found.pays_throughout)


def test_pays_throughout() -> None:
    """Where drafts that cost nothing are always taken, speculation pays at the largest batch asked about."""
    found = by_batch(Straight(), (1.0, 1.0), (1, 16), 100)
    assert (16, True) == (found.break_even, found.pays_throughout)


def test_never_pays() -> None:
    """Where drafts are never taken the break-even is 0, and every batch is best without them."""
    found = by_batch(Straight(), (0.0, 0.0), (1, 16), 100)
    assert (0, [0, 0]) == (found.break_even, [one.best.length for one in found.batches])


def test_longer_drafts_at_small_batches() -> None:
    """The best length never grows with the batch when a step's rows cost time and its weights are read once."""
    clock = Straight()
    clock.DRAFT = 2e-4
    found = by_batch(clock, (0.8, 0.7, 0.6, 0.5), (1, 4, 16, 64, 256), 100)
    lengths = [one.best.length for one in found.batches]
    assert sorted(lengths, reverse=True) == lengths
    assert lengths[0] > lengths[-1]


def test_keys_of_a_release() -> None:
    """Release 1.1.0 takes the length and the batch above which drafting stops, for EAGLE-3."""
    assert {"max_draft_len": 3, "max_concurrency": 32} == release_keys("eagle3", "1.1.0", 3, 32)


def test_keys_a_release_lacks() -> None:
    """Release 1.0.0 has no batch limit, so none is written."""
    assert {"max_draft_len": 3} == release_keys("eagle3", "1.0.0", 3, 32)


def test_keys_of_prediction_layers() -> None:
    """MTP has a field of its own for the length where the release does not fill it in itself."""
    keys = [release_keys("mtp", release, 2) for release in ("1.2.1", "main")]
    assert [{"max_draft_len": 2, "num_nextn_predict_layers": 2}, {"max_draft_len": 2}] == keys


def falling() -> BatchAnswer:
    """Return lengths that fall with the batch, on a clock whose rows cost time."""
    clock = Straight()
    clock.DRAFT = 4e-4
    return by_batch(clock, (0.8, 0.6, 0.4), (1, 8, 32, 128, 512), 100)


def test_lengths_by_batch() -> None:
    """The ladder begins at batch 1 and ends with no drafts one request above the break-even."""
    answer = falling()
    steps = ladder(answer)
    assert (1, (answer.break_even + 1, 0)) == (steps[0][0], steps[-1])
    assert sorted((length for _, length in steps), reverse=True) == [length for _, length in steps]


def test_schedule_of_least_batches() -> None:
    """Release 1.2.1 takes the least batch of each length, 1 among them, and its length is max_draft_len."""
    answer = falling()
    keys = schedule_keys("eagle3", "1.2.1", answer)
    assert {"max_draft_len": 3, "draft_len_schedule": dict(ladder(answer))} == keys


def test_schedule_of_largest_batches() -> None:
    """The development branch takes the largest batch of each length, and no max_concurrency beside it."""
    answer = falling()
    steps = ladder(answer)
    largest = {after - 1: length for (_, length), (after, _) in pairwise(steps)}
    assert {"max_draft_len": 3, "draft_len_schedule": largest} == schedule_keys("eagle3", "main", answer)
    assert max(largest) == answer.break_even


def test_no_schedule_before_it_was_there() -> None:
    """Release 1.1.0 has no schedule: it gets the length of the smallest batch, and the break-even."""
    answer = falling()
    expected = {"max_draft_len": 3, "max_concurrency": answer.break_even}
    assert expected == schedule_keys("eagle3", "1.1.0", answer)


def test_one_length_needs_no_schedule() -> None:
    """Where one length is best at every batch there is nothing to schedule."""
    answer = by_batch(Straight(), (1.0, 1.0), (1, 16), 100)
    assert {"max_draft_len": 2} == schedule_keys("eagle3", "main", answer)


def test_no_keys_where_nothing_is_drafted() -> None:
    """Where drafting pays at no batch there is no key to write."""
    assert {} == schedule_keys("eagle3", "main", by_batch(Straight(), (0.0,), (1, 16), 100))
