"""Strict YAML: what values mean, where they stand, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import StorageError
from trtllm_kit.spec import yaml_tree
from trtllm_kit.spec.document import Document, Place
from trtllm_kit.spec.yaml_tree import read_document


def document(folder: Path, text: str | bytes) -> Document:
    """Read a document of that text."""
    file = folder / "x.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_document(file, "x.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-7", -7), ("0", 0), ("1.5", 1.5), (".5", 0.5), ("4.8e12", 4.8e12), ("1e3", 1000.0), ("2.", 2.0),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("word", "word"), ('"1"', "1"),
        ("'true'", "true"), ("yes", "yes"), ("on", "on"), ("NO", "NO"), ("010", "010"), ("0x1f", "0x1f"),
        ("10:20", "10:20"), ("0.70:0.85", "0.70:0.85"), (":10", ":10"), ("1_000", "1_000"), (".inf", ".inf"),
        ("2026-01-01", "2026-01-01"), ("1.2.1", "1.2.1"), ("12345678901234567890", 1.2345678901234567e19),
        ("[1, a]", (1, "a")), ("{a: 1}", {"a": 1}), ("|\n  1\n", "1\n"),
    ],
)  # fmt: skip
def test_meaning_of_scalars(tmp_path: Path, text: str, value: Any) -> None:
    """Numbers, true, false and null are what they look like; ranges, dates, versions and yes/no are text."""
    read = document(tmp_path, f"key: {text}")

    assert ({"key": value}, []) == (read.data, read.problems)
    assert type(value) is type(read.data["key"])


def test_every_key_has_its_line_and_spelling(tmp_path: Path) -> None:
    """Keys, nested keys and list items are placed; scalars keep their spelling."""
    read = document(tmp_path, "# head\na: 1.20\nb:\n  c: 'x'\n  d:\n    - y\n    - z\n")

    assert Place("x.yaml", 2) == read.places[("a",)]
    assert Place("x.yaml", 4) == read.places[("b", "c")]
    assert Place("x.yaml", 7) == read.places[("b", "d", 1)]
    assert ("1.20", '"x"', "z") == (read.spelled[("a",)], read.spelled[("b", "c")], read.spelled[("b", "d", 1)])
    assert "x.yaml:4" == str(read.places[("b", "c")])


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["x.yaml:1: the document is empty"]),
        ("# only a comment\n", ["x.yaml:1: the document is empty"]),
        ("- a\n", ["x.yaml:1: the document must be a mapping, lines of `key: value`"]),
        ("b:\n\tc: 2\n\td: 3\n", [f"x.yaml:{line}: indented by a tab; YAML allows spaces only" for line in (2, 3)]),
        ("a: 1\na: 2\n", ["x.yaml:2: a: already set on line 1"]),
        ("b:\n  c: 1\n  c: 2\nb: 3\n", ["x.yaml:3: b.c: already set on line 2", "x.yaml:4: b: already set on line 1"]),
        (b"a: 1\nb: \xff", ["x.yaml:2: byte 0xff is not UTF-8"]),
        ("a: 1\nb: \x01", ["x.yaml:2: control character U+0001"]),
        ("a: 1\nb: \uffff\x01", ["x.yaml:2: control character U+FFFF"]),
        ("a: !!python/name:os.a\n", ["x.yaml:1: a: tags such as tag:yaml.org,2002:python/name:os.a are not allowed"]),
        ("a: !x {b: 1}\n", ["x.yaml:1: a: tags such as !x are not allowed"]),
        ("? [a]\n: 1\n", ["x.yaml:1: a key must be one word, not a list or mapping"]),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str | bytes, problems: list[str]) -> None:
    """Each fault is named with its line, and those that can be are all named at once."""
    assert problems == [str(problem) for problem in document(tmp_path, text).problems]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1,\n", 2), ("a: 1\n---\nb: 2\n", 2), ("b: 1\na: *b\n", 2), ("a: b: c\n", 1), ("a: 'x\n", 2)],
)
@pytest.mark.parametrize("base", ["CSafeLoader", "SafeLoader"])
def test_broken_syntax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, text: str, line: int) -> None:
    """What the parser says is one problem at its line, with the C parser and with the Python one."""
    monkeypatch.setattr(yaml_tree, "_LOADER", type("L", (getattr(yaml, base),), {"yaml_implicit_resolvers": {}}))

    read = document(tmp_path, text)

    assert [(line, "not valid YAML")] == [(one.place.line, one.text.partition(":")[0]) for one in read.problems]
    assert not read.complete


@pytest.mark.parametrize("base", ["CSafeLoader", "SafeLoader"])
def test_both_parsers_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """Without the C parser a profile reads the same."""
    monkeypatch.setattr(yaml_tree, "_LOADER", type("L", (getattr(yaml, base),), {"yaml_implicit_resolvers": {}}))

    read = document(tmp_path, "a: 1.20\nb: yes\nc: '1'\nd: [true, x]\ne: |\n  t\n")

    assert {"a": 1.2, "b": "yes", "c": "1", "d": (True, "x"), "e": "t\n"} == read.data
    assert ("1.20", '"1"') == (read.spelled[("a",)], read.spelled[("c",)])


def test_absurd_nesting_in_the_python_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python parser runs out of stack, which is one problem and no traceback."""
    monkeypatch.setattr(yaml_tree, "_LOADER", type("L", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}}))

    assert ["x.yaml:1: nested deeper than 32 levels"] == [
        str(one) for one in document(tmp_path, "a: " + "[" * 5000).problems
    ]


def bomb() -> str:
    """Return a few lines that stand for 100,000 values."""
    lines = ["a: &a [" + ", ".join("x" * 10) + "]"]
    lines += [
        f"{here}: &{here} [" + ", ".join([f"*{under}"] * 10) + "]" for under, here in zip("abcd", "bcde", strict=True)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(), "a: &a [*a]\n", "a: " + "[" * 500 + "]" * 500])
def test_documents_that_swell_are_refused(tmp_path: Path, text: str) -> None:
    """Aliases that multiply, a list that holds itself and deep nesting end in one problem, quickly."""
    read = document(tmp_path, text)

    assert 1 == len(read.problems)
    assert "more than 10000 values or 32 levels deep" in read.problems[0].text
    assert (False, {}) == (read.complete, read.data)


def test_absurd_nesting_and_size_are_refused(tmp_path: Path) -> None:
    """Thousands of brackets and a megabyte of text are no profile."""
    assert 1 == len(document(tmp_path, "a: " + "[" * 5000).problems)
    assert ["x.yaml:1: it holds more than 1048576 bytes: this is no such document"] == [
        str(problem) for problem in document(tmp_path, "#" * (1 << 20) + "\n").problems
    ]


def test_modest_aliases_are_fine(tmp_path: Path) -> None:
    """An anchor used twice is written out twice."""
    assert {"a": {"x": 1}, "b": {"x": 1}} == document(tmp_path, "a: &a {x: 1}\nb: *a\n").data


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    """What editors on other systems write is read."""
    assert {"a": 1, "b": 2} == document(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: 2\r\n").data


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A vanished file is a storage error."""
    with pytest.raises(StorageError, match="errno 2"):
        read_document(tmp_path / "none.yaml", "none.yaml")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=9)
KEYS = st.text("abc", min_size=1, max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=9,
)


@given(data=st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_json_comes_back(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    """JSON is YAML: it is read as it was, without a problem."""
    text = json.dumps(data, ensure_ascii=False)

    read = document(tmp_path_factory.mktemp("yaml"), text)

    assert ([], data) == (read.problems, read.data)
