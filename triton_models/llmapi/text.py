"""From tokens to text in pieces: characters stay whole, and stop texts never slip out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_PATIENCE = 16
"""Tokens of unfinished bytes after which they are no character any more."""


class Detokenizer:
    """Decodes a growing answer. Joined, the pieces are the text that decoding it at once gives.

    A tokenizer may need the tokens before to place a space, so each new token is decoded together with the piece
    before it. A token that ends within a character gives no text until the character is whole.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        """The tokens of the last piece given out, then those not given out yet."""
        self._shown = 0
        """How many of the window's tokens were given out."""

    def push(self, token: int) -> str:
        """Add a token and return the text that is certain now."""
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(_BROKEN) and len(self._window) - self._shown < _PATIENCE:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """Return what is left at the end, broken characters and all."""
        return self._advance(self._decode(self._window)) if len(self._window) > self._shown else ""

    def _advance(self, text: str) -> str:
        before = self._decode(self._window[: self._shown])
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return text[len(before) :]


class StopTexts:
    """Lets an answer through up to the first stop text, and holds back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None
        """The stop text that was found."""

    def push(self, piece: str) -> str:
        """Add a piece and return what may be shown; after a hit nothing more comes."""
        if self.hit is not None:
            return ""
        text = self._held + piece
        found = [(text.find(stop), stop) for stop in self._stops if stop in text]
        if found:
            position, self.hit = min(found)
            self._held = ""
            return text[:position]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return what was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that begins ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
