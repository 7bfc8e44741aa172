"""A whole document, carried over."""

from __future__ import annotations

import pytest

from trtllm_kit.errors import NotMoved
from trtllm_kit.migrate.release.yaml_file import rewritten

MODEL = """\
# of the llmapi model
model: /models/llama
use_cuda_graph: true
triton_config:
  max_batch_size: 8  # Triton's own
  decoupled: true
kv_cache_dtype: fp8
"""


def test_settings_of_triton_in_the_same_document_stay() -> None:
    """triton_config is no key of TensorRT-LLM: it is neither judged nor moved, and keeps its place."""
    made = rewritten(MODEL.encode(), "model.yaml", "0.21.0", "1.2.1", keep_behaviour=False)
    expected = MODEL.replace("use_cuda_graph: true", "cuda_graph_config: {}").replace(
        "kv_cache_dtype: fp8", "kv_cache_config:\n  dtype: fp8"
    )
    assert expected == made.text
    assert ((), ()) == (made.problems, made.unresolved)


def test_rows_name_the_line_of_their_key() -> None:
    """What was not said before has none."""
    made = rewritten(MODEL.encode(), "model.yaml", "0.21.0", "1.2.1")
    assert {("use_cuda_graph", 3), ("kv_cache_dtype", 7), ("backend", 0)} == {(row.key, row.line) for row in made.rows}


def test_a_key_of_the_wrong_release_is_told_and_carried_over() -> None:
    """A document of main's examples that says it is for 1.0: the key of 0.21 in it is a fault, and has a way."""
    made = rewritten(b"kv_cache_dtype: fp8\n", "a.yaml", "1.0.0", "1.2.1")
    assert [("a.yaml", 1)] == [(one.file, one.line) for one in made.problems]
    assert ("kv_cache_config:\n  dtype: fp8\n", True, False) == (made.text, made.was_refused, made.is_refused)


def test_a_key_that_stands_twice_is_told() -> None:
    """A loader takes the last one; both go where it goes."""
    made = rewritten(b"dtype: auto\ndtype: bfloat16\n", "a.yaml", "1.0.0", "1.2.1")
    assert ["dtype stands twice, and the last one is taken."] == [one.finding.message for one in made.problems]


@pytest.mark.parametrize("text", [b"- 1\n", b"a: [1\n", b"\xff\n", b"backend: _autodeploy\n"])
def test_what_is_no_document_of_the_pytorch_backend_is_refused(text: bytes) -> None:
    """With the line, or the backend."""
    with pytest.raises(NotMoved):
        rewritten(text, "a.yaml", "1.0.0", "1.2.1")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("cuda_graph_batch_sizes:\n# small\n- 1 # one\n- 2\nkv_cache_dtype: fp8 # half\n", "lines 2, 3"),
        ("kv_cache_config: {\n  enable_block_reuse: true, # ours\n}\nkv_cache_dtype: fp8\n", "line 2"),
        ("a: &a\n  free_gpu_memory_fraction: 0.8  # b\nkv_cache_config:\n  <<: *a\nkv_cache_dtype: fp8\n", "line 2"),
        ("kv_cache_dtype: fp8 # half\nreasoning_parser: 'a # b'\n# end\n", ""),
    ],
)
def test_a_comment_that_has_no_place_any_more_is_told(text: str, lines: str) -> None:
    """Comments inside a value that is written in another way, or in a text that is written anew."""
    notes = rewritten(text.encode(), "a.yaml", "0.21.0", "1.0.0").notes
    expected = [f"the comments of {lines} do not come along"] if lines else []
    assert expected == [note for note in notes if "comments" in note]
