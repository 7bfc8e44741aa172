"""Reading keys never raises: problems are noted, and answers are harmless."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import ModelConfigError, UnknownArchitecture
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.hf_keys import KeyProblem, Keys, as_json

from .configs import FAMILIES, config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(family=st.sampled_from(sorted(FAMILIES)), data=st.data())
def test_any_value_under_any_key_is_read_or_refused(family: str, data: st.DataObject) -> None:
    """Whatever JSON stands under a key, the answer is a spec or an error of the kit, never a traceback."""
    document = config(family)
    optional = ("head_dim", "rope_scaling", "rope_parameters", "layer_types", "moe_layers", "no_rope_layers")
    document[data.draw(st.sampled_from([*document, *optional]))] = data.draw(JSON)

    with suppress(ModelConfigError, UnknownArchitecture):
        assert family == read_model_spec(document, "config.json").family


def test_null_counts_as_absent() -> None:
    """Hugging Face writes null for what is not set."""
    keys = Keys({"a": None})

    assert (7, None, True, "x", None, None) == (
        keys.integer("a", default=7),
        keys.optional_number("a"),
        keys.flag("a", default=True),
        keys.word("a", ("x", "y"), default="x"),
        keys.integers("a"),
        keys.section("a"),
    )
    assert [] == keys.problems


def test_a_required_key_that_is_null_says_so() -> None:
    """Null and absent are told apart in the message."""
    keys = Keys({"a": None}, "text_config.")

    assert 1 == keys.integer("a")
    assert 1.0 == keys.number("b")
    assert [
        KeyProblem("text_config.a", "is null", "a whole number of 1 or more"),
        KeyProblem("text_config.b", "is missing", "a number above 0"),
    ] == keys.problems
    assert (False, True) == (keys.sound("a", "c"), keys.sound("c"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10**12, "a whole number from 1 to 1000000000"), (0, "a whole number of 1 or more"), (10**9, None)],
)
def test_a_number_beyond_the_most_is_told_the_most(value: int, expected: str | None) -> None:
    """What is refused for its size names the limit that it is over."""
    keys = Keys({"vocab_size": value})

    keys.integer("vocab_size")

    assert ([] if expected is None else [expected]) == [problem.expected for problem in keys.problems]


def test_a_key_read_twice_is_one_problem() -> None:
    """Two readers of one bad key give one line."""
    keys = Keys({"a": "x"})

    keys.integer("a")
    keys.integer("a")

    assert 1 == len(keys.problems)


def test_unread_keys_are_those_nobody_asked_for() -> None:
    """Keys read, compared as spellings, ignored or null are not left over."""
    keys = Keys({"a": 1, "b": 2, "c": 3, "d": None, "e": 5})

    keys.integer("a")
    keys.spelling("b", "x")
    keys.ignore("c")

    assert [("e", 5)] == list(keys.unread())


@pytest.mark.parametrize(
    ("values", "chosen", "problems"),
    [
        ({"new": 1}, "new", 0),
        ({"old": 1}, "old", 0),
        ({}, "new", 0),
        ({"new": 1, "old": 1}, "new", 0),
        ({"new": 1, "old": 2}, "new", 1),
    ],
)
def test_spellings(values: dict[str, Any], chosen: str, problems: int) -> None:
    """The spelling that holds a value is chosen; two that differ are a problem."""
    keys = Keys(values)

    assert chosen == keys.spelling("new", "old")
    assert problems == len(keys.problems)


def test_long_values_are_cut() -> None:
    """A message shows the beginning of a long value."""
    assert 60 == len(as_json(list(range(100))))
    assert as_json(list(range(100))).endswith(" ...")
