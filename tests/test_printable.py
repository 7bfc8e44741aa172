"""Text from outside on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.printable import printable


@given(st.text(st.characters(), max_size=20))
def test_whatever_it_was_it_is_one_printable_line(text: str) -> None:
    """Any text, lone surrogates too, comes out printable and encodable, and escaping it again changes nothing."""
    shown = printable(text)

    assert shown.isprintable()
    shown.encode("utf-8")
    assert shown == printable(shown)


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_ordinary_text_is_kept(text: str) -> None:
    """Letters, digits and signs of every script are left alone."""
    assert text == printable(text)
