"""Documents as YAML, JSON and CSV: what is written is what is read, by readers of either version of YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.serve.targets.documents import csv_text, json_text, yaml_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    TEXT | st.booleans() | st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
DOUBTFUL = [
    "no", "y", "N", "on", "null", "~", "1e3", "1_000", "0o17", "0x1f", "12:30:45", "1.2", ".5", "2026-11-30", "=", "<<",
    "- a", "a: b", "a #b", "'", '"', "", " ", "{}", "[a]", "*a", "&a", "!a", "%a", "@a", "`a", "NaN", ".inf", "+1",
]  # fmt: skip
"""Strings that one reader or another would take for something else, were they written plain."""


@given(st.dictionaries(TEXT, VALUES, max_size=4), TEXT)
def test_every_document_comes_back(document: dict[str, Any], head: str) -> None:
    """Whatever strings a document holds, and whatever stands in its comment, it is read as it was written."""
    assert [document, document] == list(yaml.safe_load_all(yaml_text(document, document, head=head)))


@given(st.dictionaries(TEXT, VALUES, max_size=4), TEXT)
def test_nothing_leaves_ascii(document: dict[str, Any], head: str) -> None:
    """Readers differ in which letters end a line; escapes they read alike."""
    assert yaml_text(document, head=head).isascii()


@pytest.mark.parametrize("text", DOUBTFUL)
def test_doubtful_strings_are_quoted(text: str) -> None:
    """A string that a reader of YAML 1.1 or 1.2 could take for a number, a switch or a mapping stands in quotes."""
    assert f'a: "{text}"\n'.replace('"""', '"\\""') == yaml_text({"a": text})


def test_long_lines_are_not_broken() -> None:
    """A PromQL expression or a command stays one line."""
    assert 2 == len(yaml_text({"a": "x " * 500 + "y", "b": 1}).splitlines())


def test_texts_of_several_lines_stay_readable() -> None:
    """A script in a ConfigMap is shown as it is, and a text that a block would change is quoted."""
    text = "#!/bin/sh\n\n  exec a\n"
    assert "a: |\n  #!/bin/sh\n\n    exec a\n" == yaml_text({"a": text})
    assert 'a: "ends with a space \\nb\\n"\n' == yaml_text({"a": "ends with a space \nb\n"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: "a"}, object(), {"a": {1, 2}}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """A manifest holds what the API takes, and nothing only YAML has."""
    with pytest.raises(ValueError, match=r"JSON"):
        yaml_text({"a": value})


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_json_comes_back(document: dict[str, Any]) -> None:
    """A dashboard is read as it was written."""
    assert document == json.loads(json_text(document))


def test_a_list_of_counters_is_as_its_reader_wants_it() -> None:
    """The exporter splits at commas and knows no quotes, so a value with one is refused."""
    assert "# head\nNAME, gauge, what it is (W)\n" == csv_text([("NAME", "gauge", "what it is (W)")], head="head")
    for row in [("A,B", "gauge", "help"), ("A", "gauge", "one, two"), ("A", "gauge", "a\nb")]:
        with pytest.raises(ValueError, match="cannot stand"):
            csv_text([row])
