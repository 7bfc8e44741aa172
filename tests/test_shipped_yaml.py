"""YAML that comes with the kit, and the JSON made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.health.load import RULES
from trtllm_kit.resources import package_file
from trtllm_kit.shipped_yaml import Parser, derived_path, derived_text, parse_yaml, read_shipped
from trtllm_kit.spec.ceilings import CEILINGS
from trtllm_kit.spec.load import CATALOGUE, parse_catalogue, profile_file, shipped_profiles
from trtllm_kit.spec.shipped_profile import parse_profile, read_profile
from trtllm_kit.spec.yaml_tree import read_document

SHIPPED: dict[Path, Parser] = dict.fromkeys(sorted(package_file("upstream").glob("*.yaml")), parse_yaml)
SHIPPED |= {RULES: parse_yaml, CATALOGUE: parse_catalogue, CEILINGS: parse_yaml}
SHIPPED |= dict.fromkeys(map(profile_file, shipped_profiles()), parse_profile)
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


@pytest.mark.parametrize("name", shipped_profiles())
def test_a_shipped_profile_is_the_same_from_both(name: str) -> None:
    """Data, lines and spellings do not depend on where they are read from, so neither does any message."""
    path = profile_file(name)
    assert read_document(path, "x.yaml") == read_profile(path, "x.yaml", {name: path})


def test_a_profile_of_somebody_else_is_read_itself(tmp_path: Path) -> None:
    """JSON in a folder ``derived`` beside a file that does not come with the kit means nothing."""
    path = write(tmp_path, "name: own\n")
    derived_path(path).parent.mkdir()
    derived_path(path).write_text(derived_text(path, lambda _: {"data": {}, "places": [], "spelled": []}), "utf-8")
    assert {"name": "own"} == read_profile(path, "x.yaml", {}).data
    assert {} == read_profile(path, "x.yaml", {"own": path}).data


def test_a_profile_with_problems_is_not_made_json_of(tmp_path: Path) -> None:
    """What ships has none, and what has some is read with them."""
    with pytest.raises(ValueError, match="already set on line 1"):
        parse_profile(write(tmp_path, "name: a\nname: b\n"))


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
