"""Linting LLM-API documents: keys and values by release, with lines; whatever stands in them, nothing crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lint.test_repositories import told
from trtllm_kit.findings import Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.documents import document_findings
from trtllm_kit.lint.run import lint
from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.llm_api import llm_api_keys
from trtllm_kit.upstream.llm_api_inside import inside_keys
from trtllm_kit.yaml_lines import parse_yaml

ERROR = Severity.ERROR
RELEASES = ("0.19.0", "1.0.0", "1.1.0", "1.2.1", "1.3.0rc20", "main")


def of(tmp_path: Path, text: str, version: str = "1.2.1") -> list[tuple[str, str, str, str]]:
    """Lint a text, and return what is told."""
    (tmp_path / "args.yaml").write_text(text)
    return told(lint(tmp_path / "args.yaml", Context(version)))


@pytest.mark.parametrize(
    ("text", "version", "severity", "line", "compared"),
    [
        ("use_cuda_graph: true\n", "1.2.1", "error", 1, "became cuda_graph_config in 1.0"),
        ("a: 1\nkv_cache_config:\n  free_gpu_mem_fraction: 0.9\n".removeprefix("a: 1\n"), "1.2.1", "error", 2, ""),
        ("build_config:\n  max_batch_size: 8\n", "1.2.1", "error", 1, "the limits stand at the top level"),
        ("kv_cache_config: {tokens_per_block: 32}\n", "1.0.0", "error", 1, "the key is in 1.1.0, 1.2.1, main"),
        ("moe_config:\n  backend: TRITON\n", "1.0.0", "error", 2, "it takes CUTLASS"),
        ("speculative_config:\n  decoding_type: Eagel\n", "1.2.1", "error", 2, "decoding_type Eagel; it has"),
        ("enable_sleep: true\n", "main", "error", 1, "became sleep_config"),
        ("nobodys_key: 1\n", "1.2.0", "warning", 1, "not confirmed for this release"),
        ("pytorch_backend_config: {}\n", "0.21.0", "error", 1, "is gone in 0.21: its keys stand at the top level"),
        ("kv_cache_config: {dtype: fp8}\n", "0.21.0", "warning", 1, "the key is in 1.0.0"),
        ("use_kuda_graph: true\n", "0.20.0", "warning", 1, "no release that was read has it"),
    ],
)
def test_what_a_release_does_not_take_is_told_at_its_line(
    text: str, version: str, severity: str, line: int, compared: str, tmp_path: Path
) -> None:
    """Renamed and unknown keys, keys of later releases, words that are none."""
    found = of(tmp_path, text, version)
    assert [(severity, "PF24", f"args.yaml:{line}")] == [one[:3] for one in found]
    assert compared in found[0][3]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("build_config:\n  max_batch_size: 8\n", "1.0.0"),
        ("kv_cache_config: {tokens_per_block: 32}\n", "1.1.0"),
        ("moe_config:\n  backend: TRITON\n", "1.1.0"),
        ("speculative_config:\n  decoding_type: MTP\n  num_nextn_predict_layers: 1\n", "1.2.1"),
        ("sleep_config: {}\n", "main"),
        ("pytorch_backend_config:\n  use_cuda_graph: true\n", "0.19.0"),
        ("use_cuda_graph: true\nkv_cache_dtype: fp8\nmoe_backend: TRTLLM\n", "0.21.0"),
        ("speculative_config:\n  decoding_type: NGram\n  prompt_lookup_num_tokens: 2\n", "0.21.0"),
        ("kv_cache_config: {enable_block_reuse: yes}\nprint_iter_log: on\n", "1.2.1"),
        ("backend: tensorrt\nfast_build: true\nworkspace: /tmp/w\n", "1.2.1"),
        ("backend: _autodeploy\ntransforms: {}\n", "1.2.1"),
        ("", "1.2.1"),
        ("# all by default\n", "1.2.1"),
    ],
)
def test_what_the_release_takes_is_passed(text: str, version: str, tmp_path: Path) -> None:
    """The near thing of each: the same key where it is taken, or a backend whose keys are not known."""
    assert [] == of(tmp_path, text, version)


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1", "main"])
def test_every_default_of_a_release_is_taken_by_it(version: str) -> None:
    """A document that spells out what the release does anyway is legal."""
    whole: dict[str, Any] = {}
    for row in llm_api_keys():
        if row.holds(version) and row.default is not None and row.type != "mapping":
            put(whole, row.key.split("."), row.default)
    whole.pop("speculative_config", None)  # its kinds have tests of their own
    text = yaml.safe_dump(whole)
    found = list(document_findings(parse_yaml(text.encode()), "a", version))
    assert [] == [one.finding for one in found if one.finding.severity is ERROR]
    assert len(whole) > 20


def put(document: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a nested key; one that is given as a value already stays."""
    for part in path[:-1]:
        document = document.setdefault(part, {})
        if not isinstance(document, dict):
            return
    document.setdefault(path[-1], value)


KEYS = sorted({row.key for row in (*llm_api_keys(), *inside_keys())})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats(allow_nan=False) | st.sampled_from(["MTP", "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "mode"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), st.sampled_from(RELEASES))
def test_no_value_of_any_key_crashes_a_rule(flat: dict[str, Any], version: str) -> None:
    """Whatever type stands where, there are findings or none."""
    whole: dict[str, Any] = {}
    for key, value in flat.items():
        put(whole, key.split("."), value)
    for one in document_findings(parse_yaml(yaml.safe_dump(whole).encode()), "a", version):
        assert one.finding.compared
        assert one.finding.suggestion


@pytest.mark.parametrize("sizes", ["8", "[]", "[a, 1]", "null", "[1, 2]"])
def test_lists_of_any_kind_beside_a_size_are_judged_or_passed(sizes: str, tmp_path: Path) -> None:
    """Only numbers are compared with the largest batch."""
    found = of(tmp_path, f"cuda_graph_config: {{batch_sizes: {sizes}, max_batch_size: 8}}\n")
    assert (["batch_sizes up to 2, max_batch_size 8; not confirmed for this release"] if sizes == "[1, 2]" else []) == [
        one[3] for one in found
    ]


@pytest.mark.parametrize("version", known_releases())
def test_every_known_release_answers(version: str, tmp_path: Path) -> None:
    """From the oldest to main, whether its keys were read or not."""
    (tmp_path / "args.yaml").write_text("kv_cache_config: {enable_block_reuse: false}\n")
    assert version == lint(tmp_path / "args.yaml", Context(version)).release


def test_a_document_without_a_release_is_asked_of_the_newest_in_a_container(tmp_path: Path) -> None:
    """It says so."""
    (tmp_path / "args.yaml").write_text("model: x\n")
    read = lint(tmp_path / "args.yaml", Context())
    assert ("1.2.1", "nobody: the newest in a container") == (read.release, read.release_from)
