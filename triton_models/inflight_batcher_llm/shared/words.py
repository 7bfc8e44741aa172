"""Words that end an answer, or must not be in it, as the token sequences that the engine compares with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenizer import Tokenizer

_BEFORE = "a"
"""Text before a word that stands in the middle of an answer."""


def spellings(tokenizer: Tokenizer, word: str) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences in which a word can appear in an answer: at its start, after text, after a space.

    None of them has the special tokens that a prompt has around it: with those a word would never be found.
    """
    found = [tuple(tokenizer.encode(text, special=False)) for text in (word, f" {word}")]
    before = tokenizer.encode(_BEFORE, special=False)
    whole = tokenizer.encode(_BEFORE + word, special=False)
    if whole[: len(before)] == before:
        found.append(tuple(whole[len(before) :]))
    return tuple(dict.fromkeys(one for one in found if one))


def word_list(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return sequences as the backend takes them: (2, n), all ids in the first row, where each ends in the second.

    The second row is filled up with -1; no sequence at all is (2, 0).
    """
    flat = [one for sequence in sequences for one in sequence]
    ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int32)
    rows = np.full((2, len(flat)), -1, dtype=np.int32)
    rows[0], rows[1, : len(sequences)] = flat, ends
    return rows


def batch_of_lists(lists: Sequence[np.ndarray]) -> np.ndarray:
    """Return (rows, 2, n) of word lists of different lengths."""
    width = max(one.shape[1] for one in lists)
    batch = np.full((len(lists), 2, width), -1, dtype=np.int32)
    batch[:, 0] = 0
    for row, one in zip(batch, lists, strict=True):
        row[:, : one.shape[1]] = one
    return batch
