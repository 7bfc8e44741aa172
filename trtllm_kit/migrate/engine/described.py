"""The model that an engine's or checkpoint's own config.json describes, for a plan without its folder (pure)."""

from __future__ import annotations

from typing import Any

from trtllm_kit.checkpoint.rank_described import read_described
from trtllm_kit.errors import KitError
from trtllm_kit.migrate.engine.whole import Model
from trtllm_kit.migrate.found import Found, Reader
from trtllm_kit.spec.hf_config import read_model_spec

_SECTION = "pretrained_config."


def described_model(found: Found) -> Model | None:
    """Return the one model that the files describe whole; None where there is none, two, or not enough of it.

    Sliding windows are in no such file, so a model that has them is planned as if it kept everything.
    """
    documents = _documents(found)
    if len(documents) != 1:
        return None
    file, document = next(iter(documents.items()))
    try:
        described = read_described(document, file, ())
        spec = read_model_spec(dict(described.config), file)
    except KitError:
        return None
    return Model(f"the model that {file} describes", spec, _positions(document), is_folder=False)


def _documents(found: Found) -> dict[str, dict[str, Any]]:
    """Return the models' sections by file, nested again as they stood there."""
    documents: dict[str, dict[str, Any]] = {}
    for setting in found.settings:
        name = setting.name.removeprefix(_SECTION)
        in_engine = setting.reader is Reader.ENGINE and setting.name.startswith(_SECTION)
        if in_engine or setting.reader is Reader.CHECKPOINT:
            _put(documents.setdefault(setting.where.file, {}), name.split("."), setting.value)
    return documents


def _put(document: dict[str, Any], path: list[str], value: object) -> None:
    for part in path[:-1]:
        inner = document.setdefault(part, {})
        if not isinstance(inner, dict):  # a file that names a section and a value alike describes no model
            return
        document = inner
    document[path[-1]] = value


def _positions(document: dict[str, Any]) -> int | None:
    said = document.get("max_position_embeddings")
    return said if isinstance(said, int) and said > 0 else None
