"""The tokenizer of a checkpoint folder: ``tokenizer.json`` with the package tokenizers, any other with transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

_FAST = "tokenizer.json"
_NO_ID = -1


class BadTokenizer(Exception):
    """The folder holds no tokenizer that can be loaded; the text names it."""


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, folder: Path) -> None:
        """Load it; raises ``BadTokenizer``."""
        self._folder = folder
        self._fast: Any = None
        self._slow: Any = None
        try:
            self._load()
        except Exception as error:  # whatever the two packages raise, the operator needs the folder
            raise BadTokenizer(f"no tokenizer could be loaded from {folder}: {error}") from error

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of a text; ``special`` adds what the model wants around a prompt."""
        if self._fast is not None:
            return list(self._fast.encode(text, add_special_tokens=special).ids)
        return list(self._slow.encode(text, add_special_tokens=special))

    def decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """Return the text of ids; bytes that are no character become the replacement character."""
        known = [int(one) for one in ids if 0 <= one < self.size]
        if self._fast is not None:
            return str(self._fast.decode(known, skip_special_tokens=skip_special))
        return str(self._slow.decode(known, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))

    @cached_property
    def size(self) -> int:
        """Ids end below it, those of added tokens among them."""
        return int(self._fast.get_vocab_size(with_added_tokens=True)) if self._fast is not None else len(self._slow)

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, the tokenizer's own first; empty when no file of the folder names one."""
        named = self._named("eos_token")
        listed = [self._json(name).get("eos_token_id") for name in ("generation_config.json", "config.json")]
        found = [named] if named is not None else []
        for value in listed:
            found += value if isinstance(value, list) else [] if value is None else [value]
        return tuple(dict.fromkeys(int(one) for one in found))

    @cached_property
    def pad_id(self) -> int:
        """What fills up shorter sequences: the padding token, else an end token, else 0."""
        named = self._named("pad_token")
        if named is not None:
            return named
        return self.end_ids[0] if self.end_ids else 0

    def _load(self) -> None:
        if (self._folder / _FAST).is_file():
            from tokenizers import Tokenizer as Fast

            self._fast = Fast.from_file(str(self._folder / _FAST))
            return
        from transformers import AutoTokenizer

        self._slow = AutoTokenizer.from_pretrained(str(self._folder), legacy=False, local_files_only=True)

    def _named(self, key: str) -> int | None:
        """Return the id of a token that ``tokenizer_config.json`` names, as text or as an object with its text."""
        value = self._json("tokenizer_config.json").get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if not isinstance(text, str):
            return None
        found = self._fast.token_to_id(text) if self._fast is not None else self._slow.convert_tokens_to_ids(text)
        return None if found is None or found == _NO_ID else int(found)

    def _json(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        document = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        return document if isinstance(document, dict) else {}
