"""The keys inside the LLM API's sections, against the recorded tables of each release, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream.llm_api import llm_api_keys, unknown_llm_api_keys
from trtllm_kit.upstream.llm_api_inside import TAGS, inside_key, inside_keys, kinds_of

RECORDED = ("1.0.0", "1.1.0", "1.2.1", "main")
OBJECTS = {"_mpi_session", "mpi_session", "batched_logits_processor", "checkpoint_loader"}
"""Keys that take live Python objects only."""
FREE = {"cp_config": ("1.0.0", "1.1.0", "1.2.1")}
"""Sections whose inside those releases leave free."""
Field = dict[str, Any]
Identity = tuple[str, str | None]


def recorded(shared: Path, version: str) -> dict[str, Any]:
    """Read the recorded table of one release."""
    document: dict[str, Any] = yaml.load(
        (shared / "contract" / f"llmapi-{version}.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
    )
    return document


def walked(document: dict[str, Any], version: str, fields: dict[str, Field], prefix: str = "") -> dict[str, Field]:
    """Return every field below some fields by its dotted key; sections of several kinds are left to ``unions``."""
    classes = document.get("definitions") or document["classes"]
    found: dict[str, Field] = {}
    for name, field in fields.items():
        key = f"{prefix}{name}"
        if key in OBJECTS:
            continue
        found[key] = field
        inner = [word for word in re.findall(r"\w+", str(field.get("type"))) if (classes.get(word) or {}).get("fields")]
        inner = ["MoeLoadBalancerConfig"] if name == "load_balancer" and "MoeLoadBalancerConfig" in classes else inner
        if key not in TAGS and version not in FREE.get(key, ()):
            for word in inner[:1]:  # of the two kinds of CUDA graphs the first is that of a decoder
                found |= walked(document, version, classes[word]["fields"], f"{key}.")
    return found


def top_level(document: dict[str, Any]) -> dict[str, Field]:
    """Return the fields of the document itself, for the PyTorch backend."""
    if "top_level" in document:
        fields: dict[str, Field] = document["top_level"]["fields"]
        return fields
    classes = document["classes"]
    return dict(classes["BaseLlmArgs"]["fields"] | classes["TorchLlmArgs"]["fields"])


def unions(document: dict[str, Any], version: str) -> Iterator[tuple[str, str, dict[str, Field]]]:
    """Yield section, kind and fields of every kind of a section that has kinds."""
    if "unions" in document:
        for section, union in document["unions"].items():
            for kind, name in union["map"].items():
                yield section, kind, walked(document, version, document["definitions"][name]["fields"])
        return
    speculative = document["speculative"]
    base = speculative["base_fields"].get("fields", speculative["base_fields"])
    alias = {"speculative_model_dir": {"type": "str|null", "default": None}}
    for kind, one in speculative["kinds"].items():
        yield "speculative_config", kind, {"decoding_type": {}} | alias | base | one["fields"]
    sparse = document["classes"].get("SparseAttention", {})
    for kind, one in (sparse.get("kinds") or {}).items():
        yield "sparse_attention_config", kind, sparse["common_fields"] | one["fields"]


def ours(version: str) -> dict[Identity, Any]:
    """Return what the tables say of that release's PyTorch backend, by key and kind."""
    plain: dict[Identity, Any] = {(row.key, None): row for row in llm_api_keys() if row.holds(version)}
    inside = [row for row in inside_keys() if row.holds(version) and row.backend == "pytorch" and row.kind != "encode"]
    return plain | {(row.key, row.kind): row for row in inside}


def theirs(shared: Path, version: str) -> dict[Identity, Field]:
    """Return what is recorded of that release's PyTorch backend, by key and kind."""
    document = recorded(shared, version)
    found: dict[Identity, Field] = {
        (key, None): field for key, field in walked(document, version, top_level(document)).items()
    }
    for section, kind, fields in unions(document, version):
        found |= {(f"{section}.{name}", kind): field for name, field in fields.items()}
    return found


@pytest.mark.parametrize("version", RECORDED)
def test_the_tables_have_exactly_the_recorded_keys_at_every_depth(shared: Path, version: str) -> None:
    """No key of a release read is missing at any depth and in any kind of a section, and none was invented."""
    assert set(theirs(shared, version)) == set(ours(version))


@pytest.mark.parametrize("version", RECORDED)
def test_every_default_is_the_recorded_one(shared: Path, version: str) -> None:
    """What a release does without a key is what was recorded, where a plain value was."""
    rows = ours(version)
    plain = {
        identity: field["default"]
        for identity, field in theirs(shared, version).items()
        if isinstance(field.get("default"), bool | int | float | None) or _is_word(field.get("default"))
        if "default" in field
    }
    assert plain == {identity: rows[identity].default for identity in plain}


def _is_word(default: object) -> bool:
    return isinstance(default, str) and not default.startswith("<") and "not settled" not in default


@pytest.mark.parametrize("version", RECORDED)
def test_every_list_of_values_is_the_recorded_one(shared: Path, version: str) -> None:
    """The values a key is limited to are those that were recorded."""
    rows = ours(version)
    spoken = {
        identity: tuple(value for value in field["allowed"] if value is not None)
        for identity, field in theirs(shared, version).items()
        if len(field.get("allowed", ())) > 1 and identity[0] not in TAGS
    }
    assert len(spoken) > 9
    assert spoken == {identity: rows[identity].allowed for identity in spoken}


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1"])
def test_the_engine_backend_has_the_recorded_keys(shared: Path, version: str) -> None:
    """The keys that the TensorRT backend of the LLM API takes besides are listed, their insides too; main has none."""
    document = recorded(shared, version)
    fields = walked(document, version, document["classes"]["TrtLlmArgs"]["fields"])
    held = {row.key for row in inside_keys() if row.backend == "tensorrt" and row.holds(version)}
    assert set(fields) == held
    assert set() == {row.key for row in inside_keys() if row.backend == "tensorrt" and row.holds("main")}


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("1.0.0", {"Eagle", "MTP", "NGram", "DraftTarget", "Medusa", "Lookahead", "UserProvided", "AUTO"}),
        ("1.2.1", {"Eagle", "MTP", "NGram", "DraftTarget", "Medusa", "Lookahead", "UserProvided", "AUTO", "SaveState"}),
        ("main", {"Eagle", "Eagle3", "MTP", "NGram", "Draft_Target", "PARD", "SA", "DFlash", "DSpark", "User_Provided",
                  "SaveState", "AUTO"}),
    ],
)  # fmt: skip
def test_the_words_of_speculation_are_those_of_the_release(version: str, kinds: set[str]) -> None:
    """decoding_type takes exactly the words that the release read has."""
    assert kinds == set(kinds_of(version, "speculative_config"))


@pytest.mark.parametrize(
    ("version", "section", "unknown"),
    [
        ("1.2.1", {"decoding_type": "NGram", "max_draft_len": 3, "invented": 1}, ["invented"]),
        ("1.2.1", {"decoding_type": "NGram", "max_draft_len": 3, "eagle3_one_model": True}, ["eagle3_one_model"]),
        ("1.2.1", {"decoding_type": "Eagle3", "max_draft_len": 3}, ["decoding_type"]),
        ("main", {"decoding_type": "Eagle3", "max_draft_len": 3}, []),
        ("main", {"max_draft_len": 3}, ["decoding_type"]),
        ("1.3.0rc14", {"decoding_type": "PARD", "max_draft_len": 3}, []),
        ("1.2.1", {"decoding_type": "PARD", "max_draft_len": 3}, ["decoding_type"]),
        ("main", {"decoding_type": "MTP", "sa_config": {"invented": 1}}, ["sa_config.invented"]),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_as_unknown_as_an_invented_one(
    version: str, section: dict[str, Any], unknown: list[str]
) -> None:
    """Without a known word nothing else is looked at; what the kind has is taken, at every depth."""
    found = unknown_llm_api_keys(version, {"speculative_config": section})
    assert [f"speculative_config.{name}" for name in unknown] == list(found)


def test_cuda_graphs_of_an_encoder_are_taken_where_they_are_meant() -> None:
    """The main branch takes keys in cuda_graph_config with mode encode that it refuses for a decoder."""
    plain = {row.key for row in llm_api_keys() if row.holds("main")}
    encoder = {row.key for row in inside_keys() if row.kind == "encode" and row.key.count(".") == 1}
    key = min(encoder - plain).rpartition(".")[2]
    assert inside_key("main", f"cuda_graph_config.{key}", "encode") is not None
    assert () == unknown_llm_api_keys("main", {"cuda_graph_config": {"mode": "encode", key: None}})
    assert (f"cuda_graph_config.{key}",) == unknown_llm_api_keys("main", {"cuda_graph_config": {key: None}})
