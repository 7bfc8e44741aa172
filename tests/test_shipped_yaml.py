"""YAML that comes with the kit, and the JSON made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.health.load import RULES
from trtllm_kit.resources import package_file
from trtllm_kit.shipped_yaml import Parser, derived_path, derived_text, parse_yaml, read_shipped
from trtllm_kit.spec.load import CATALOGUE, parse_catalogue

SHIPPED: dict[Path, Parser] = dict.fromkeys(sorted(package_file("upstream").glob("*.yaml")), parse_yaml)
SHIPPED |= {RULES: parse_yaml, CATALOGUE: parse_catalogue}
TEXT = "rows:\n- {name: ä, at: {8: 0.5}, list: [1, null, true]}\n- {name: b}\nempty: []\nnumber: 3\n"
HELD = {"rows": [{"name": "ä", "at": {"8": 0.5}, "list": [1, None, True]}, {"name": "b"}], "empty": [], "number": 3}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_json_beside_a_shipped_file_is_made_from_it(path: Path) -> None:
    """Whoever edits the YAML runs ``make docs``; until then it is read itself, which takes longer."""
    assert derived_text(path, SHIPPED[path]) == derived_path(path).read_text("utf-8")


def test_both_give_the_same_document(tmp_path: Path) -> None:
    """Whether the JSON is there or not, a reader gets the same, with keys that are texts."""
    path = write(tmp_path, TEXT)
    assert HELD == read_shipped(path, parse_yaml)
    write_derived(path)
    assert HELD == read_shipped(path, not_parsed)


def test_json_of_an_older_file_is_not_read(tmp_path: Path) -> None:
    """After an edit the YAML holds, not what was made from it before."""
    path = write(tmp_path, TEXT)
    write_derived(path)
    write(tmp_path, "rows: []\n")
    assert {"rows": []} == read_shipped(path, parse_yaml)


def write(folder: Path, text: str) -> Path:
    """Write the YAML file and return its path."""
    path = folder / "table.yaml"
    path.write_text(text, "utf-8")
    return path


def write_derived(path: Path) -> None:
    """Write the JSON as ``make docs`` does."""
    derived_path(path).parent.mkdir()
    derived_path(path).write_text(derived_text(path, parse_yaml), "utf-8")


def not_parsed(path: Path) -> dict[str, object]:
    """Fail: the JSON should have been read."""
    raise AssertionError(path)
