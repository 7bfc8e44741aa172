"""From tokens to text in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_model import write_tiny_tokenizer
from text import Detokenizer, StopTexts


def decode_bytes(tokens: Sequence[int]) -> str:
    """Decode tokens that are bytes."""
    return bytes(tokens).decode("utf-8", "replace")


def decode_words(tokens: Sequence[int]) -> str:
    """Decode as SentencePiece does: the first word of what is decoded together loses its space."""
    return "".join(f" w{token}" for token in tokens).removeprefix(" ")


def pieces_of(detokenizer: Detokenizer, tokens: Sequence[int]) -> list[str]:
    """Return the piece of every token and what is left at the end."""
    return [detokenizer.push(token) for token in tokens] + [detokenizer.flush()]


@given(st.text(max_size=40))
def test_characters_stay_whole(text: str) -> None:
    """No piece holds half a character, and the pieces make the text."""
    pieces = pieces_of(Detokenizer(decode_bytes), text.replace("\ufffd", "?").encode())

    assert text.replace("\ufffd", "?") == "".join(pieces)
    assert all("\ufffd" not in piece for piece in pieces)


@given(st.lists(st.integers(0, 9), max_size=20))
def test_spaces_survive(tokens: list[int]) -> None:
    """A decoder that drops the first space of what it decodes loses none between pieces."""
    assert decode_words(tokens) == "".join(pieces_of(Detokenizer(decode_words), tokens))


def test_broken_bytes_come_out_at_the_end() -> None:
    """An answer that ends within a character shows the replacement character instead of losing it."""
    assert ["a", "", "", "\ufffd"] == pieces_of(Detokenizer(decode_bytes), b"a\xe2\x82")


def test_a_run_of_broken_bytes_is_not_held_for_ever() -> None:
    """After sixteen tokens that make no character the text goes out broken."""
    pieces = pieces_of(Detokenizer(decode_bytes), b"\x80" * 20)

    assert "\ufffd" * 16 == pieces[15]
    assert "\ufffd" * 20 == "".join(pieces)


@given(data=st.data())
def test_real_tokenizer_agrees(data: st.DataObject, tokenizer: object) -> None:
    """Over a real byte-level tokenizer, pieces joined equal the text decoded at once."""
    text = data.draw(st.text(alphabet="the tin än 你好 €\n", max_size=30))
    ids = tokenizer.encode(text).ids  # type: ignore[attr-defined]
    decode = tokenizer.decode  # type: ignore[attr-defined]

    assert text == "".join(pieces_of(Detokenizer(lambda tokens: decode(list(tokens))), ids))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A real byte-level tokenizer."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tiny_tokenizer(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def show(stops: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], str | None]:
    """Return what is shown of each piece and at the end, and the stop text that was found."""
    filter_ = StopTexts(stops)
    shown = [filter_.push(piece) for piece in pieces]
    return [*shown, filter_.flush()], filter_.hit


def test_a_stop_text_over_two_pieces_never_slips_out() -> None:
    """The beginning of a stop text is held back, and nothing after it is shown."""
    assert (["so", "", "", ""], "END") == show(["END"], ["so", "EN", "D and on"])


def test_what_only_looked_like_a_stop_text_is_shown() -> None:
    """A held beginning comes out as soon as it cannot become the stop text, or at the end."""
    assert (["so", "", "STAY", ""], None) == show(["STOP"], ["so", "ST", "AY"])
    assert (["so", "", "ST"], None) == show(["STOP"], ["so", "ST"])


def test_the_earliest_stop_text_wins() -> None:
    """Of several stop texts in a piece, the first one ends the answer."""
    assert (["a ", ""], "two") == show(["one", "two"], ["a two and one"])


@given(st.text("abc", max_size=20), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_shown_text_is_the_answer_up_to_the_first_stop(text: str, stops: list[str], size: int) -> None:
    """However the text is cut, a stop text never appears in what is shown, and without one all of it is."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    shown, hit = show(stops, pieces)

    whole = "".join(shown)
    assert text.startswith(whole)
    assert (hit is None) == (whole == text and not any(stop in text for stop in stops))
    assert not any(stop in whole for stop in stops)
    if hit is not None:
        assert text.startswith(whole + hit)
