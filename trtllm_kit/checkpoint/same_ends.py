"""What rank files leave open: rows of padding, a head that is the embedding, tokens that begin and end, the rope."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trtllm_kit.checkpoint.config_files import CONFIG
from trtllm_kit.checkpoint.given_ranks import Given
from trtllm_kit.checkpoint.matrix import Matrix, Slice, matrix_shape, tile_ranges
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.errors import UsageError
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.spec.load import parse_config

_GENERATION = "generation_config.json"
_TOKENIZER = "tokenizer.json"


class Ends(NamedTuple):
    """The vocabulary that is brought back."""

    rows: int
    stated: int
    """What config.json of the rank files says."""
    source: str
    """Who says that it is smaller; empty where nobody does."""
    zeros: int
    """Last rows of the embedding that are all zero, of those that are kept."""
    filled: int
    """Rows behind the vocabulary that are not zero, and are cut off all the same."""


def real_vocabulary(given: Given, tokenizer: Path | None) -> Ends:
    """Return the model's own vocabulary, without the rows that a maker filled up; raises ``UsageError``.

    The model that was converted knows it, or the configuration beside the tokenizer; a smaller one is taken only where
    all the rows behind it are zero.
    """
    stated = given.described.vocab
    _require_room(given, tokenizer)
    asked, source = _told(given, tokenizer)
    rows = asked if asked is not None and asked < stated and not _filled(given, asked, stated) else stated
    zeros = _zeros_at_end(given, rows)
    return Ends(rows, stated, source if rows < stated else "", zeros, _filled_padding(given))


def _told(given: Given, tokenizer: Path | None) -> tuple[int | None, str]:
    if given.made is not None:
        return given.made.vocab, "the record of its conversion"
    return _stated_vocabulary(tokenizer), "config.json beside the tokenizer"


def _stated_vocabulary(folder: Path | None) -> int | None:
    """Return ``vocab_size`` of a Hugging Face folder, None where it has none."""
    config = _config(folder)
    section = config.get("text_config")
    size = config.get("vocab_size", section.get("vocab_size") if isinstance(section, dict) else None)
    return size if type(size) is int and size > 0 else None


def _config(folder: Path | None) -> dict[str, Any]:
    if folder is None:
        return {}
    try:
        return parse_config(read_file(folder / CONFIG), folder / CONFIG)
    except (OSError, UnfitFile):
        return {}


def _require_room(given: Given, tokenizer: Path | None) -> None:
    """Refuse a tokenizer of another model: one whose tokens have no row."""
    if tokenizer is None:
        return
    most, stated = max(_largest_token(tokenizer) + 1, _stated_vocabulary(tokenizer) or 0), given.described.vocab
    if most > stated:
        raise UsageError(
            f"{tokenizer} is not the tokenizer of {given.folder}",
            why=f"it has {most:,} tokens, and the embedding {stated:,} rows",
            hint="give --tokenizer the folder of the model that the checkpoint was made of",
        )


def _largest_token(folder: Path) -> int:
    """Return the largest number of a token in ``tokenizer.json``, -1 without that file."""
    try:
        document = json.loads(read_file(folder / _TOKENIZER))
        vocabulary = document["model"]["vocab"]
        numbers = list(vocabulary.values()) if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
        added = [entry["id"] for entry in document.get("added_tokens", ())]
        return max((one for one in (*numbers, *added) if type(one) is int), default=-1)
    except (OSError, UnfitFile, ValueError, KeyError, TypeError):
        return -1


def _filled(given: Given, begin: int, end: int) -> bool:
    """Whether any row of the ends from ``begin`` on holds something."""
    view = given.everything
    return any(bool(_rows(view, name, begin, end).any()) for name in _ends(given))


def _ends(given: Given) -> tuple[str, ...]:
    names = (f"{given.model.prefix}embed_tokens.weight", given.model.head_name)
    return tuple(name for name in names if name in given.whole.joined)


def _rows(view: WeightFolder, name: str, begin: int, end: int) -> Any:
    rows, columns = matrix_shape(view.tensors[name].shape)
    return view.rows(Slice(name, (0, rows), (0, columns)), begin, end)


def _zeros_at_end(given: Given, rows: int, most: int = 1024) -> int:
    """Count the last rows of the embedding that are zero, up to ``most``."""
    view, name = given.everything, _ends(given)[0]
    last = _rows(view, name, max(rows - most, 0), rows)
    filled = np.flatnonzero(last.any(axis=1))
    return len(last) - (int(filled[-1]) + 1 if len(filled) else 0)


def _filled_padding(given: Given) -> int:
    """Count the rows behind the stated vocabulary, with which ranks are made alike, that are not zero."""
    count = 0
    for tensor in given.ranks.tensors:
        if tensor.source.zero_rows and len(tensor.shape) > 1 and tensor.fact is None:
            rows, padding = tensor.source.rows, tensor.source.zero_rows
            found = _rows(given.ranks.files[tensor.file], tensor.name, rows - padding, rows)
            count += int(found.any(axis=1).sum())
    return count


def ends_are_one(given: Given) -> bool:
    """Whether the head is the embedding: it has no tensor of its own, or one with the same numbers."""
    if not given.has_head:
        return True
    view = given.everything
    embedding, head = _ends(given)
    if view.tensors[embedding].dtype != view.tensors[head].dtype:
        return False
    rows, columns = matrix_shape(view.tensors[embedding].shape)
    tiles = tile_ranges(Matrix((Slice(embedding, (0, rows), (0, columns)),)))
    return all(np.array_equal(_rows(view, embedding, *tile), _rows(view, head, *tile)) for tile in tiles)


def token_numbers(given: Given, tokenizer: Path | None, copied: Mapping[str, bytes], rows: int) -> dict[str, Any]:
    """Return the tokens that begin and end a text: of the converted model, or of the files beside the tokenizer."""
    if given.made is not None:
        ends = list(given.made.eos_tokens)
        found = {"bos_token_id": given.made.bos_token, "eos_token_id": ends[0] if len(ends) == 1 else ends or None}
        return {key: value for key, value in found.items() if value is not None}
    generation = _parsed(copied.get(_GENERATION))
    told = _config(tokenizer)
    values = {key: told.get(key, generation.get(key)) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {key: value for key, value in values.items() if _are_tokens(value, rows)}


def told_rope(given: Given, tokenizer: Path | None) -> dict[str, Any]:
    """Return the rope of the configuration beside the tokenizer, where the ranks' own states none; may be empty."""
    if given.described.states_rope:
        return {}
    config = _config(tokenizer)
    found = {key: config[key] for key in ("rope_theta", "rope_scaling") if config.get(key) is not None}
    section = config.get("rope_parameters")
    return (
        {"rope_theta": None, "rope_scaling": None, "rope_parameters": section} if isinstance(section, dict) else found
    )


def _parsed(raw: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _are_tokens(value: object, rows: int) -> bool:
    numbers = value if isinstance(value, list) and value else [value]
    return all(type(number) is int and 0 <= number < rows for number in numbers)
