"""The reader of YAML documents of others, compared with PyYAML's safe loader."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.yaml_lines import MOST_NODES, Yaml, YamlError, documents, parse_yaml

GOLDEN = Path(__file__).parent / "golden" / "plans"
DOCUMENT = """\
# a comment
kv_cache_config:
  enable_block_reuse: yes
  free_gpu_memory_fraction: 0.9
cuda_graph_config: null
batch_sizes: [1, 2,
  4]
moe_config: {backend: TRTLLM}
"""


def test_data_is_what_a_safe_loader_makes_of_it() -> None:
    """Words of YAML 1.1 mean what they mean to upstream: yes is true."""
    assert yaml.safe_load(DOCUMENT) == parse_yaml(DOCUMENT.encode()).data
    assert parse_yaml(DOCUMENT.encode()).data["kv_cache_config"]["enable_block_reuse"] is True


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.name)
def test_every_golden_document_is_read_as_it_is(path: Path) -> None:
    """What the kit writes comes back the same."""
    assert yaml.safe_load(path.read_text()) == parse_yaml(path.read_bytes()).data


def test_every_key_has_its_line() -> None:
    """Dotted, in block and in flow style."""
    assert {
        "kv_cache_config": 2, "kv_cache_config.enable_block_reuse": 3, "kv_cache_config.free_gpu_memory_fraction": 4,
        "cuda_graph_config": 5, "batch_sizes": 6, "moe_config": 8, "moe_config.backend": 8,
    } == parse_yaml(DOCUMENT.encode()).places  # fmt: skip


def test_an_empty_document_is_an_empty_mapping() -> None:
    """Nothing, or comments alone."""
    assert {} == parse_yaml(b"").data == parse_yaml(b"# none\n").data


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    """A loader takes the last without a word."""
    read = parse_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert {"a": 3, "b": {"c": 2}} == read.data
    assert (("b.c", 3, 4), ("a", 1, 5)) == read.twice


@pytest.mark.parametrize(
    ("raw", "line", "said"),
    [
        (b"a: 1\nb: [1, 2\nc: 3\n", 3, "while parsing a flow sequence"),
        (b"a: 1\n\tb: 2\n", 2, "character"),
        (b"a: 'one\n", 2, "quoted scalar"),
        (b"- 1\n- 2\n", 1, "it holds no mapping"),
        (b"just words\n", 1, "it holds no mapping"),
        (b"a: 1\n---\nb: 2\n", 2, "single document"),
        (b"a: &x [1]\nb: *y\n", 2, "undefined alias"),
        (b"a: !!python/object:os.system {}\n", 1, "could not determine a constructor"),
        (b"a: 2024-13-45\n", 1, "month must be in 1..12"),
        (b'a: !!int ""\n', 1, "not of its tag"),
        (b"a: !!timestamp x\n", 1, "not of its tag"),
        (b"a: !!bool x\n", 1, "not of its tag"),
        (b"a: 1\nb: \xff\n", 2, "byte 0xff is not UTF-8"),
        (b"a: \x00\n", 1, ""),
        (b"? [1, 2]\n: 3\n", 1, ""),
    ],
)
def test_what_no_loader_takes_is_refused_at_its_line(raw: bytes, line: int, said: str) -> None:
    """The same texts are errors of PyYAML, or no mapping."""
    with pytest.raises(YamlError, match=f"^line {line}: ") as refused:
        parse_yaml(raw)
    assert said in refused.value.said


def test_aliases_cannot_swell_a_document() -> None:
    """Ten levels of ten references each are refused before anything walks over them."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(YamlError, match=f"more than {MOST_NODES} values"):
        parse_yaml("\n".join(levels).encode())


def test_deep_nesting_is_refused() -> None:
    """In flow style, where it takes no indentation, and too deep for the parser's own stack."""
    for depth in (70, 5000):
        with pytest.raises(YamlError, match="nest"):
            parse_yaml(b"a: " + b"[" * depth + b"]" * depth)


def test_a_list_that_holds_itself_is_refused() -> None:
    """An alias into its own list has no end."""
    with pytest.raises(YamlError):
        parse_yaml(b"a: &a [*a]\n")


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Garbage gives one kind of error."""
    read = outcome(raw)
    assert isinstance(read, Yaml) or read.line >= 1


def outcome(raw: bytes) -> Yaml | YamlError:
    """Return the document, or what is wrong."""
    try:
        return parse_yaml(raw)
    except YamlError as error:
        return error


def test_documents_of_a_cluster_have_the_line_of_every_value() -> None:
    """Those in lists too, in each document; of a text in a block its first line."""
    text = b"a: [1,\n  {b: x}]\n---\n# none\n---\nc: |\n  d\n8000: 010\non: 2024-01-02\n"
    first, second = documents(text)
    assert ({"a": [1, {"b": "x"}]}, 2, 1) == (first.value, first.line(("a", 1, "b")), first.line(("a", 0)))
    assert {"c": "d\n", "8000": "010", "on": "2024-01-02"} == second.value, "keys and odd numbers are words"
    assert (7, 8, 6) == (second.line(("c",)), second.line(("8000",)), second.line(()))
    assert ("x", None, None) == (first.at(("a", 1, "b")), first.at(("a", 2)), first.at(("z", "y")))


def test_what_a_mapping_takes_over_is_there_and_its_own_wins() -> None:
    """The first of several mappings before the later ones, as YAML says."""
    text = b"x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  <<: [*x, *y]\n  c: 3\n"
    (one,) = documents(text)
    assert {"a": 1, "b": 1, "c": 3} == one.value["z"] == parse_yaml(text).data["z"]
    assert (1, 5) == (one.line(("z", "a")), one.line(("z", "c")))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            b"a: &a [1]\n"
            + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 106)),
            1,
        ),
        (b"a: &a\n  b: *a\n", 1),
        (b"a: 1\n? [x]\n: 2\n", 2),
        (b"a: 1\n---\nb: [\n", 4),
        (b"a: \xff\n", 1),
    ],
)
def test_documents_that_cannot_be_read_are_refused(text: bytes, line: int) -> None:
    """What aliases swell or lead back to itself before anything walks over it; a broken one with its line."""
    with pytest.raises(YamlError) as refused:
        documents(text)
    assert line == refused.value.line
