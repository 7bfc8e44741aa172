"""Texts that checkpoints are run on: plain text or JSONL, and which pieces of it a calibration takes.

A JSONL file (its name ends in ``.jsonl`` or ``.ndjson``) holds one document a line; each gives one sample, its first
tokens. A plain text is cut into samples one behind the other. Without a seed the first ones are taken. With one,
sample ``i`` is ranked by the SHA-256 of the text ``SEED:i`` and the lowest ranks are taken, in the order of the file:
the same on every machine, and with more samples those of fewer stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtllm_kit.checkpoint.stream import Window, windows
from trtllm_kit.errors import CalibrationError, storage_error
from trtllm_kit.files import UnfitFile, read_text
from trtllm_kit.resources import package_file
from trtllm_kit.spec.quality import is_jsonl
from trtllm_kit.strict_json import parse_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

USUAL_FIELDS = ("text", "content", "article", "document", "prompt")
"""Fields of a JSONL record that are looked for, in this order, when none is named."""
_SHOWN = 5


@dataclass(frozen=True)
class Text:
    """A text as it lies in its file, and its documents when it is a file of them."""

    raw: str
    documents: tuple[str, ...] | None = None
    """None for plain text, which is one long document."""

    @property
    def sha256(self) -> str:
        """What plans, records and manifests know the text by."""
        return hashlib.sha256(self.raw.encode()).hexdigest()

    def samples(self, tokenizer: Tokenizer, count: int, tokens: int, seed: int = 0) -> list[Window]:
        """Return at most ``count`` pieces of at most ``tokens`` tokens, as a calibration runs them."""
        if self.documents is not None:
            chosen = chosen_samples(len(self.documents), count, seed)
            return [piece for at in chosen for piece in windows(tokenizer, self.documents[at], 1, tokens)]
        if not seed:
            return windows(tokenizer, self.raw, count, tokens)
        pieces = windows(tokenizer, self.raw, len(self.raw), tokens)
        return [pieces[at] for at in chosen_samples(len(pieces), count, seed)]

    def first(self, tokenizer: Tokenizer, most_tokens: int, window: int) -> list[Window]:
        """Return the beginning of the text in pieces of ``window`` tokens, as a report reads it."""
        if self.documents is None:
            return windows(tokenizer, self.raw, max(most_tokens // window, 1), min(window, most_tokens))
        found: list[Window] = []
        left = most_tokens
        for document in self.documents:
            for piece in windows(tokenizer, document, -(-left // window), window):
                found.append(piece[:left])
                left -= len(found[-1])
                if not left:
                    return found
        return found


def chosen_samples(available: int, count: int, seed: int) -> list[int]:
    """Return which of ``available`` samples are taken, ascending: the first, or those that the seed ranks lowest."""
    if not seed:
        return list(range(min(count, available)))
    ranked = sorted(range(available), key=lambda at: hashlib.sha256(f"{seed}:{at}".encode()).digest())
    return sorted(ranked[:count])


def read(path: str | None, field: str | None = None, asked: str = "calibration.text") -> Text:
    """Return the text of a file, or the bundled calibration text; ``asked`` is the key or option that named it.

    Raises ``StorageError``, and ``CalibrationError`` for what is no UTF-8 text and for the first JSONL line that is
    no record with text in ``field`` (or one of ``USUAL_FIELDS``), with the numbers of the others.
    """
    if path is None:
        return Text(read_text(package_file("checkpoint", "calibration.txt")))
    try:
        raw = read_text(Path(path))
    except UnfitFile as error:
        raise CalibrationError(f"{path} cannot be read", why=error.unfit, hint=f"give {asked} a text file") from None
    except OSError as error:
        raise storage_error(error, "reading the text") from None
    except UnicodeDecodeError as error:
        raise CalibrationError(f"{path} is not UTF-8 text", why=str(error), hint=f"give {asked} a UTF-8 file") from None
    return Text(raw, _documents(raw, path, field) if is_jsonl(path) else None)


def held_text() -> Text:
    """Return the bundled text that calibration never sees."""
    return Text(package_file("checkpoint", "held_text.txt").read_text("utf-8"))


def _documents(raw: str, path: str, field: str | None) -> tuple[str, ...]:
    """Return the text of every record; lines and documents of blanks alone have nothing to say and are passed over."""
    found: list[str] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(raw.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_text_of(line, field))
        except ValueError as error:
            wrong.append((number, str(error)))
    if wrong:
        raise _malformed(path, wrong, field)
    return tuple(document for document in found if document.strip())


def _kind(value: Any) -> str:
    """Name what JSON calls a value."""
    named = {list: "a list", dict: "an object", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return named.get(type(value), "null")


def _text_of(line: str, field: str | None) -> str:
    """Return the text of one record; raises ``ValueError`` that says why there is none."""
    record = parse_json(line.encode())
    if not isinstance(record, dict):
        raise ValueError(f"it holds {_kind(record)}, not an object")
    name = next(_present(record, field), None)
    if name is None:
        looked = field or " or ".join(USUAL_FIELDS)
        raise ValueError(f"it has the fields {', '.join(record) or 'none'}, and none is {looked}")
    text = record[name]
    if not isinstance(text, str):
        raise ValueError(f"its field {name} holds {_kind(text)}, not text")
    return text


def _present(record: dict[str, Any], field: str | None) -> Iterator[str]:
    yield from (name for name in ((field,) if field is not None else USUAL_FIELDS) if name in record)


def _malformed(path: str, wrong: list[tuple[int, str]], field: str | None) -> CalibrationError:
    number, why = wrong[0]
    others = ", ".join(str(line) for line, _ in wrong[1:_SHOWN])
    more = ", ..." if len(wrong) > _SHOWN else ""
    rest = f"; {len(wrong) - 1} more such lines: {others}{more}" if len(wrong) > 1 else ""
    named = "" if field else ", or name the field of the text (calibration.field, --calib-field)"
    return CalibrationError(
        f"{path}:{number}: no record with a text", why=why + rest, hint=f"correct that line: one JSON object{named}"
    )
