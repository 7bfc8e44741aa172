"""JSON with one meaning."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.strict_json import MOST_LEVELS, parse_json


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "line 1 column 2"),
        (b"\xff", "can't decode"),
        (b'"\xed\xa0\x80"', "can't decode"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', 'the key "b" occurs twice'),
        (rb'{"a": ["\ud800"]}', r'"\\ud800" holds half of a surrogate pair'),
        (rb'{"\udc00": 1}', "half of a surrogate pair"),
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels"),
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "nested deeper than 64 levels"),
        (b"9" * 5000, "4300"),
    ],
)
def test_what_has_no_one_meaning_is_a_value_error_that_says_why(raw: bytes, reason: str) -> None:
    """Never a RecursionError, and never a text that cannot be written again."""
    with pytest.raises(ValueError, match=reason):
        parse_json(raw)


def test_sound_documents_come_back_as_they_are() -> None:
    """Surrogate pairs are characters, and the deepest level allowed is allowed."""
    assert {"a": "\U0001f600", "b": [1, 2.5, None, True]} == parse_json(
        rb'{"a": "\ud83d\ude00", "b": [1, 2.5, null, true]}'
    )
    assert [] == parse_json(b"\xef\xbb\xbf[]")
    assert parse_json(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS)


def test_the_number_of_values_can_be_bounded() -> None:
    """Keys count too, and the answer comes at once."""
    raw = json.dumps({f"key{number}": number for number in range(300_000)}).encode()
    began = time.monotonic()
    with pytest.raises(ValueError, match="more than 1000 keys and values"):
        parse_json(raw, 1000)
    assert time.monotonic() - began < 5
    assert {"a": 1} == parse_json(b'{"a": 1}', 3)
    with pytest.raises(ValueError, match="more than 2"):
        parse_json(b'{"a": 1}', 2)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(document=_JSON)
def test_every_plain_document_survives(document: Any) -> None:
    """Strictness refuses nothing that json writes of plain values."""
    assert document == parse_json(json.dumps(document).encode())


@given(raw=st.binary(max_size=80))
def test_no_bytes_raise_anything_but_a_value_error(raw: bytes) -> None:
    """Whatever stands in a file."""
    with suppress(ValueError):
        parse_json(raw)
