"""YAML text that changes where its data changes."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.migrate.release.documents import RELEASES, legal_document
from trtllm_kit.errors import KitError
from trtllm_kit.migrate.release.moves import move
from trtllm_kit.migrate.release.yaml_edit import edited
from trtllm_kit.migrate.release.yaml_file import rewritten
from trtllm_kit.yaml_lines import parse_yaml

TEXT = """\
# Served for search.

backend: pytorch   # not the other one
use_cuda_graph: true # faster
# half of the cache
kv_cache_dtype: fp8  # e4m3
kv_cache_config:
    # keep a little
    free_gpu_memory_fraction: 0.85   # of what is left

    enable_block_reuse: no
cuda_graph_batch_sizes:
- 1
- 2
print_iter_log: "true"
# the end
"""


def between(text: str, source: str, target: str) -> str:
    """Return the text after a move."""
    made = move(parse_yaml(text.encode()).data, source, target, keep_behaviour=False)
    after = edited(text, made.document, {row.key: row.to for row in made.rows if row.to and row.to != row.key})
    assert not after.anew
    return after.text


def test_comments_order_quotes_and_indent_survive() -> None:
    """Comments of a key go with it; every other line is as it was."""
    expected = """\
# Served for search.

backend: pytorch   # not the other one
cuda_graph_config: # faster
  batch_sizes: [1, 2]
kv_cache_config:
    # keep a little
    # half of the cache
    dtype: fp8  # e4m3
    free_gpu_memory_fraction: 0.85   # of what is left

    enable_block_reuse: no
print_iter_log: "true"
# the end
"""
    assert expected == between(TEXT, "0.21.0", "1.0.0")


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("a: 1\nb: 2\n", {"a": 1}, "a: 1\n"),
        ("a: 1\n# of b\nb: 2\n", {"a": 1}, "a: 1\n# of b\n"),
        ("a: 1", {"a": 1, "b": 2}, "a: 1\nb: 2\n"),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "c": {"d": 3}}, "a: 1\r\nc:\r\n  d: 3\r\n"),
        ("a:\n  b: 1\n  c: 2\nd: 3\n", {"a": {"c": 2}, "d": 3}, "a:\n  c: 2\nd: 3\n"),
        ("a:\n  b: 1\nd: 3\n", {"a": {}, "d": 3}, "a: {}\nd: 3\n"),
        ("a: {b: 1, c: 2}  # both\n", {"a": {"c": 2}}, "a: {c: 2}  # both\n"),
        ("a: |\n  text\n  more\nb: 1\n", {"b": 1}, "b: 1\n"),
        ("---\na: 1\n...\n", {"a": 1, "b": 2}, "---\na: 1\nb: 2\n...\n"),
        ("# only words\n", {"b": 2}, "# only words\nb: 2\n"),
        ("a: yes\nb: 'on'\n", {"a": True, "b": "off"}, "a: yes\nb: 'off'\n"),
        ("a: 1\n", {}, "{}\n"),
        ("a:\n- 1\n- 2  # two\nb: 1\n", {"a": [1], "b": 1}, "a: [1]  # two\nb: 1\n"),
    ],
)  # fmt: skip
def test_a_change_touches_its_own_lines(text: str, after: dict[str, Any], expected: str) -> None:
    """Deleted, added, emptied, replaced, in every style."""
    made = edited(text, after, {})
    assert (expected, False) == (made.text, made.anew)


def test_what_cannot_be_changed_in_place_is_written_anew_and_told() -> None:
    """An anchor that another key goes by: the values are right, the head is kept, the comment inside is not."""
    text = "# head\na: &one\n  x: 1  # inside\n  y: 2\nb: *one\n"
    made = edited(text, {"a": {"x": 1}, "b": {"x": 1, "y": 2}}, {})
    assert made.anew
    assert made.text.startswith("# head\n")
    assert {"a": {"x": 1}, "b": {"x": 1, "y": 2}} == yaml.safe_load(made.text)


@given(st.text(alphabet=" \n:#-{}[]&*!|>'\"?,\tab1", max_size=12), st.integers(0, len(TEXT)), st.sampled_from(RELEASES))
@settings(max_examples=100, deadline=None)
def test_any_text_is_carried_over_or_refused(piece: str, at: int, target: str) -> None:
    """A slip anywhere in a file gives a document or an error that says where, and never anything else."""
    with contextlib.suppress(KitError):
        made = rewritten((TEXT[:at] + piece + TEXT[at:]).encode(), "extra.yaml", "0.21.0", target)
        assert isinstance(parse_yaml(made.text.encode()).data, dict)


@given(st.integers(0, 2**32), st.sampled_from(RELEASES), st.sampled_from(RELEASES), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_text_always_holds_the_data(seed: int, source: str, target: str, block: bool) -> None:
    """Whatever a document looks like, the edited text is read as what was asked for, and its head is there."""
    document = legal_document(source, random.Random(seed))
    text = "# head\n\n" + yaml.safe_dump(document, default_flow_style=not block, sort_keys=False)
    made = move(document, source, target)
    after = edited(text, made.document, {row.key: row.to for row in made.rows if row.to and row.to != row.key})
    assert made.document == parse_yaml(after.text.encode()).data
    assert after.text.startswith("# head\n")
