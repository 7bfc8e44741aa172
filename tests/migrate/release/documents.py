"""Random documents that a release takes, and what a document means in a release."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from trtllm_kit.migrate.release.change import UNSAID
from trtllm_kit.migrate.release.keys import get, leaves, put
from trtllm_kit.upstream.defaults import governed_by
from trtllm_kit.upstream.facts import in_range
from trtllm_kit.upstream.llm_api import llm_api_key, llm_api_keys, unknown_llm_api_keys
from trtllm_kit.upstream.llm_api_inside import TAGS, inside_key, inside_keys, is_early, kinds_of
from trtllm_kit.upstream.releases import known_releases
from trtllm_kit.upstream.renames import renames

RELEASES = tuple(name for name in known_releases() if in_range(name, "0.17", None))
"""Releases whose LLM API the tables know."""
_ONE_WORD = {
    ("speculative_config.decoding_type", "Eagle3"): "Eagle",
    ("sampler_type", "TorchSampler"): "auto",
    ("load_format", 0): "AUTO",
    ("load_format", 1): "DUMMY",
    ("load_format", 2): "VISION_ONLY",
}
"""Two words for one thing on the PyTorch backend; of samplers, unless beams are searched."""
_AS_DEFAULT = {("sampler_type", "TorchSampler"), ("load_format", 0), ("load_format", "AUTO"), ("load_format", "auto")}
_LIMITS = {"max_batch_size": 2048, "max_num_tokens": 8192, "max_input_len": 1024, "max_beam_width": 1}
"""What a limit that is left out, or null, comes to in every release."""
_VALUES: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "bool": (True, False),
    "int": (1, 2, 64),
    "float": (0.5, 0.8),
    "str": ("word",),
    "mapping": ({},),
}


def legal_document(release: str, choose: random.Random, most: int = 10) -> dict[str, Any]:
    """Return a document of up to ``most`` settings that a release takes, values of the types and words it lists."""
    document: dict[str, Any] = {}
    kinds = {section: choose.choice(kinds_of(release, section) or (None,)) for section in TAGS}
    known = [*llm_api_keys(early=is_early(release)), *inside_keys(early=is_early(release))]
    rows = [row for row in known if row.holds(release) and getattr(row, "backend", "pytorch") == "pytorch"]
    for row in choose.sample(rows, choose.randint(1, most)):
        section = row.key.partition(".")[0]
        if row.key in TAGS or getattr(row, "kind", None) not in (None, kinds.get(section)):
            continue
        trial = _copied(document)
        if section in TAGS:
            put(trial, f"{section}.{TAGS[section]}", kinds[section])
        if not _free(trial, row.key):
            continue
        put(trial, row.key, _value(row, choose))
        if not unknown_llm_api_keys(release, trial):
            document = trial
    return document


def meaning(document: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Return the settings of a document by the first of their names, without those that hold without being said."""
    return {
        one_name(leaf.key): _one_word(leaf.key, leaf.value)
        for leaf in leaves(document)
        if not leaf.there and not _holds_anyway(release, leaf.key, leaf.value, document)
    }


def _one_word(key: str, value: Any) -> Any:
    return _ONE_WORD.get((key, value), value) if isinstance(value, str | int) else value


def one_name(key: str) -> str:
    """Return one name for a key under all its names; what stands for it with another value is another one."""
    names, waiting = {key}, [key]
    while waiting:
        at = waiting.pop()
        for row in renames():
            if row.new and row.change == "same" and row.table == "llm-api" and at in (row.old, row.new):
                others = {row.old, row.new} - names
                names |= others
                waiting += others
    return min(names)


def _holds_anyway(release: str, key: str, value: Any, document: Mapping[str, Any]) -> bool:
    section, _, name = key.partition(".")
    if TAGS.get(section) == name:
        return False
    if isinstance(value, str | int) and (
        value == _LIMITS.get(key.rpartition(".")[2], UNSAID) or (key, value) in _AS_DEFAULT
    ):
        return True
    choice = governed_by(key, release)
    if choice is not None and choice.word(value) == choice.does:
        return True
    kind = document[section].get(TAGS[section]) if section in TAGS and isinstance(document[section], Mapping) else None
    row = llm_api_key(release, key) or inside_key(release, key, kind)
    default = list(row.default) if row is not None and isinstance(row.default, tuple) else row.default if row else None
    return value in (None, {}) or (value == default and type(value) is type(default))


def _free(document: dict[str, Any], key: str) -> bool:
    """Whether a key may be set: nothing around it is a plain value, and it is no section that holds something."""
    parts = key.split(".")
    around = (get(document, ".".join(parts[:count])) for count in range(1, len(parts)))
    return all(isinstance(held, dict) for there, held in around if there) and not get(document, key)[0]


def _value(row: Any, choose: random.Random) -> Any:
    kinds = row.type.split("|")
    if kinds[0].startswith("list"):
        return [choose.choice(row.allowed)] if row.allowed else [1, 2]
    if row.allowed:
        return choose.choice(row.allowed)
    kind = choose.choice(kinds)
    return choose.choice(_VALUES.get(kind, (None,)) if not kind.startswith("list") else ([1, 2],))


def _copied(document: dict[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, dict) else value for name, value in document.items()}
