"""The tables agree with themselves: certainty, sources, ranges, no two rows for one release."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import pytest

from trtllm_kit.resources import package_file
from trtllm_kit.upstream.facts import in_range, read_table, spelt_out, version_key

TABLES = sorted(path.stem for path in package_file("upstream").glob("*.yaml"))
IDENTITY = (
    "key", "name", "architecture", "world", "part", "format", "kind", "kinds", "attention", "version", "layout",
    "method", "scheme",
)  # fmt: skip
"""Fields that together say what a row is about; two rows about the same must not share a release."""
NOT_ROWS = ("sources", "defaults")


def rows_of(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every row of a table with its section, rows inside rows too."""
    found: list[tuple[str, dict[str, Any]]] = []
    for section, entries in read_table(table).items():
        if section in NOT_ROWS:
            continue
        for entry in entries:
            found.append((section, entry))
            found += [(f"{section}.{entry['name']}", value) for value in entry.get("values", ())]
    return found


def test_every_table_of_the_folder_is_checked() -> None:
    """A table added to the folder is covered without touching this test."""
    assert {"releases", "llm_api", "precision", "families", "memory", "triton_llmapi"} <= set(TABLES)
    assert {"bounds", "combinations"} <= set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_certainty_and_a_source_that_is_spelt_out(table: str) -> None:
    """Each row says how sure it is and names a source of the table."""
    document = read_table(table)
    for section, entry in rows_of(table):
        whole = spelt_out(entry, document)
        assert whole["certainty"] in ("read", "near", "recalled"), (section, entry)
        assert len(whole["source"]) > 10, (section, entry)


@pytest.mark.parametrize("table", TABLES)
def test_no_source_is_unused(table: str) -> None:
    """A source that no row names is a mistake."""
    document = read_table(table)
    used = {spelt_out(entry, document)["source"] for _, entry in rows_of(table)}
    wheres = {source if isinstance(source, str) else source["where"] for source in document["sources"].values()}
    assert wheres == used


@pytest.mark.parametrize("table", TABLES)
def test_every_range_begins_before_it_ends(table: str) -> None:
    """Since and until are versions, in that order."""
    for section, entry in rows_of(table):
        bounds = [version_key(entry[name]) for name in ("since", "until") if entry.get(name)]
        assert bounds == sorted(set(bounds)), (section, entry)


@pytest.mark.parametrize("table", TABLES)
def test_no_two_rows_speak_of_the_same_thing_in_the_same_release(table: str) -> None:
    """Rows about one thing have ranges apart, so a query has one answer."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for section, entry in rows_of(table):
        alike[(section, *(str(entry.get(name)) for name in IDENTITY))].append(entry)
    for what, entries in alike.items():
        for one, other in combinations(entries, 2):
            assert not overlap(one, other), what


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows hold for a common release: then the start of one lies in the other."""
    starts = [one.get("since") or "0.1", other.get("since") or "0.1"]
    return any(all(in_range(start, row.get("since"), row.get("until")) for row in (one, other)) for start in starts)


@pytest.mark.parametrize(
    ("version", "since", "until", "holds"),
    [
        ("1.2.1", None, None, True),
        ("1.2.1", "1.2", "1.3", True),
        ("1.2.1", None, "1.2.1", False),
        ("1.2.0", "1.2", None, True),
        ("1.3.0rc14", "1.2", "1.3.0", True),
        ("1.3.0rc20", None, "1.3.0rc21", True),
        ("1.3.0rc21", None, "1.3.0rc21", False),
        ("main", "1.4.0rc0", None, True),
        ("main", None, "1.4.0rc0", False),
        ("1.2.1", "main", None, False),
    ],
)
def test_ranges_include_since_and_exclude_until(
    version: str, since: str | None, until: str | None, holds: bool
) -> None:
    """A range is half open, release candidates sort before their release, and main after everything."""
    assert holds == in_range(version, since, until)


def test_a_word_that_is_no_version_is_refused() -> None:
    """Ranges never compare nonsense."""
    with pytest.raises(ValueError, match="'latest' is not a TensorRT-LLM version"):
        version_key("latest")
