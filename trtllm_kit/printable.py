"""Text from outside, such as names in files and lines of a log, made safe to show on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return text on one line: what a terminal would act on or cannot show is written as an escape.

    Letters, signs and spaces of every script stay. A byte of a path that is no UTF-8 reads as that byte (``\xff``).
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    if "\udc80" <= letter <= "\udcff":  # how Python holds a byte that it could not decode
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")
