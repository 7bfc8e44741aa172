"""The tables agree with themselves: certainty, sources, ranges, no two rows for one release."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import pytest

from trtllm_kit.resources import package_file
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.facts import in_range, read_table, spelt_out, version_key

TABLES = sorted(path.stem for ending in ("yaml", "json") for path in package_file("upstream").glob(f"*.{ending}"))
IDENTITY = (
    "key", "name", "architecture", "world", "part", "format", "kind", "kinds", "attention", "version", "layout",
    "method", "scheme", "flag", "field", "mode", "backend", "program", "old", "server", "path", "tag", "pattern",
    "model", "keys", "option", "side", "reader", "names", "when", "words",
)  # fmt: skip
"""Fields that together say what a row is about; two rows about the same must not share a release."""
NOT_ROWS = ("sources", "defaults")


def rows_of(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every row of a table with its section, rows inside rows too."""
    found: list[tuple[str, dict[str, Any]]] = []
    for section, entries in read_table(table).items():
        if section in NOT_ROWS or not isinstance(entries, list):
            continue
        for entry in (entry for entry in entries if isinstance(entry, dict)):
            found.append((section, entry))
            found += [
                (f"{section}.{entry['name']}", value) for value in entry.get("values", ()) if isinstance(value, dict)
            ]
    return found


def test_every_table_of_the_folder_is_checked() -> None:
    """A table added to the folder is covered without touching this test."""
    assert {"releases", "llm_api", "precision", "families", "memory", "triton_llmapi"} <= set(TABLES)
    assert {"bounds", "combinations", "llm_api_inside"} <= set(TABLES)


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


@pytest.mark.parametrize("table", TABLES)
def test_what_was_read_was_read_in_a_release_of_the_range(table: str) -> None:
    """A row that is certain because of some releases' own text speaks of one of them, and they are releases we know."""
    document = read_table(table)
    for section, entry in rows_of(table):
        whole = spelt_out(entry, document)
        read_in = whole.get("read_in", ())
        assert all(release(version).version == version for version in read_in), (section, entry)
        if whole["certainty"] == "read" and read_in:
            held = [version for version in read_in if in_range(version, whole.get("since"), whole.get("until"))]
            assert held, (section, entry)


@pytest.mark.parametrize("table", TABLES)
def test_every_bound_lies_among_the_known_releases(table: str) -> None:
    """A range begins in the span of the releases that the kit knows, and none ends behind main."""
    first, last = version_key(known_releases()[0]), version_key(known_releases()[-1])
    for section, entry in rows_of(table):
        if entry.get("since"):
            assert first <= version_key(entry["since"]) <= last, (section, entry)
        if entry.get("until"):
            assert version_key(entry["until"]) <= last, (section, entry)


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
