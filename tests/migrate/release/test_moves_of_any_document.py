"""Any document of any release, moved to any other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.migrate.release.documents import RELEASES, legal_document, meaning, one_name
from trtllm_kit.migrate.release.change import How, Row
from trtllm_kit.migrate.release.keys import leaves
from trtllm_kit.migrate.release.moves import move, problems

PAIRS = [(one, other) for one in RELEASES for other in RELEASES]


def told(rows: tuple[Row, ...]) -> set[str]:
    """Return the keys of which a report says that they do not mean the same, those inside a section too."""
    found = set()
    for row in rows:
        if row.how is not How.EXACT:
            inside = leaves(row.before, f"{row.key}.") if isinstance(row.before, dict) else ()
            names = (row.key, row.to, *(leaf.key for leaf in inside))
            found |= {one_name(name) for name in names if name}
    return found


def comes_back(source: str, target: str, seed: int) -> None:
    """Assert what is asked of one document, there and back."""
    document = legal_document(source, random.Random(seed))
    if problems(document, source):
        return
    there = move(document, source, target)
    assert () == problems(there.document, target), (document, there.document)
    back = move(there.document, target, source)
    assert () == problems(back.document, source), (document, there.document, back.document)
    was, is_now = meaning(document, source), meaning(back.document, source)
    differs = {name for name in was.keys() | is_now.keys() if was.get(name) != is_now.get(name)}
    assert set() == differs - told(there.rows) - told(back.rows), (document, there.document, back.document)


@pytest.mark.parametrize("source", RELEASES)
def test_every_pair_of_releases_takes_what_was_moved_and_means_the_same_when_it_comes_back(source: str) -> None:
    """No rule of the other release speaks against the result; what differs after the way back, a row told."""
    for number, target in enumerate(RELEASES):
        for seed in range(3):
            comes_back(source, target, seed + 10 * number)


@given(st.sampled_from(PAIRS), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_any_document_takes_the_way_there_and_back(pair: tuple[str, str], seed: int) -> None:
    """The same for documents that nobody chose."""
    comes_back(*pair, seed)


@given(st.sampled_from(RELEASES), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_release_to_itself_changes_nothing(release: str, seed: int) -> None:
    """The document is the one that was given, and there is no row."""
    document = legal_document(release, random.Random(seed))
    made = move(document, release, release)
    assert (document, ()) == (made.document, made.rows)
