"""How two answers to one prompt differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.migrate.comparison.difference import AROUND, Difference, Likeness, Near, difference

PROMPT = "Where is the cat?"
TEXTS = st.text(alphabet="ab \n\ufffd</s>", max_size=12)


def test_equal_texts_are_the_same() -> None:
    """Nothing is said of them, whatever they hold."""
    assert Difference(Likeness.SAME) == difference(" on </s> it\ufffd\n", " on </s> it\ufffd\n", PROMPT)


@pytest.mark.parametrize(
    ("old", "new", "ways"),
    [
        ("on the mat</s>", "on the mat", (Near.SPECIAL,)),
        ("on the mat", "<|begin_of_text|>on the mat<|eot_id|>", (Near.SPECIAL,)),
        ("Where is the cat? on the mat", " on the mat", (Near.ECHO,)),
        ("on the mat", "Where is the cat?on the mat", (Near.ECHO,)),
        ("on the m\ufffd\ufffd", "on the m", (Near.CUT,)),
        (" on the mat", "on the mat", (Near.LEADING,)),
        ("on the mat\n", "on the mat", (Near.TRAILING,)),
        ("Where is the cat? on the mat", "on the mat", (Near.ECHO, Near.LEADING)),
        ("<s> Where is the cat? on the mat</s>", "on the mat", (Near.SPECIAL, Near.ECHO, Near.LEADING)),
        ("on the mat", " on the mat \n", (Near.LEADING, Near.TRAILING)),
    ],
)
def test_known_differences_are_named(old: str, new: str, ways: tuple[Near, ...]) -> None:
    """The fewest ways that make both equal are named, on whichever side they are."""
    assert [(Likeness.NEAR, ways)] * 2 == [
        (one.likeness, one.near) for one in (difference(old, new, PROMPT), difference(new, old, PROMPT))
    ]


def test_other_words_are_another_answer() -> None:
    """The first character that differs is named, with what stands before it and how each goes on."""
    found = difference("on the mat", "on the hat", PROMPT)
    assert Difference(Likeness.DIFFERENT, (), 7, None, "on the ", "mat", "hat") == found


def test_what_is_shown_is_cut() -> None:
    """Of long answers so many characters are shown before and after the place."""
    found = difference("x" * 1000 + "a" * 1000, "x" * 1000 + "b" * 1000, PROMPT)
    assert (1000, "x" * AROUND, "a" * AROUND, "b" * AROUND) == (found.character, found.before, found.old, found.new)


def test_an_answer_that_ends_earlier_is_another_answer() -> None:
    """Its end is the place, and nothing goes on there."""
    found = difference("on the mat", "on the", PROMPT)
    assert (Likeness.DIFFERENT, 6, " mat", "") == (found.likeness, found.character, found.old, found.new)


def test_the_place_is_behind_an_echo_of_one_side() -> None:
    """Where one side repeats the prompt and says something else too, the place is where the answers part."""
    found = difference("Where is the cat? on the mat", " on the hat", PROMPT)
    assert (Likeness.DIFFERENT, (Near.ECHO,), 8) == (found.likeness, found.near, found.character)


def test_the_place_is_counted_in_tokens() -> None:
    """With a tokenizer the first other token is named as well."""
    found = difference("on the mat", "on the hat", PROMPT, lambda text: [hash(word) for word in text.split()])
    assert (7, 2) == (found.character, found.token)


def test_an_empty_prompt_is_echoed_by_nobody() -> None:
    """A prompt of blanks hides no difference."""
    assert Likeness.DIFFERENT is difference("a", "b", " ").likeness


@given(TEXTS, TEXTS)
def test_only_equal_texts_are_the_same(old: str, new: str) -> None:
    """Same means equal to the letter; the sides may be swapped; a place is where the texts part."""
    found, back = difference(old, new, PROMPT), difference(new, old, PROMPT)
    assert (old == new) == (found.likeness is Likeness.SAME)
    assert (found.likeness, found.near, found.old, found.new) == (back.likeness, back.near, back.new, back.old)
    if found.likeness is Likeness.DIFFERENT:
        assert found.character is not None
        assert found.old[:1] != found.new[:1]


@given(TEXTS)
def test_blanks_at_an_end_are_never_another_answer(text: str) -> None:
    """Whatever the answer, more blanks behind it are a known difference."""
    assert Likeness.NEAR is difference(text, text + " \n", PROMPT).likeness
