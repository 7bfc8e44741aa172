"""``base:`` inheritance of documents."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.spec.document import Document
from trtllm_kit.spec.inherit import _overlaid, is_file_name, origins, read_with_bases


def read(folder: Path, **texts: str) -> Document:
    """Write each text as ``<name>.yaml``, and read the one called ``top`` with its bases."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return read_with_bases(folder / "top.yaml", "top.yaml", {"shipped": folder / "shipped.yaml"})


def test_mappings_merge_and_the_rest_is_replaced(tmp_path: Path) -> None:
    """Keys of a mapping are laid over the base's; lists and scalars replace."""
    merged = read(tmp_path, top="base: shipped\na: {x: 2}\nl: [9]\n", shipped="a: {x: 1, y: 1}\nl: [1, 2]\nz: 3\n")

    assert {"a": {"x": 2, "y": 1}, "l": (9,), "z": 3} == merged.data


def test_each_key_knows_the_line_that_set_it(tmp_path: Path) -> None:
    """Origins point into the document that set a key last."""
    merged = read(tmp_path, top="base: shipped\n\na: {x: 2}\n", shipped="a:\n  x: 1\n  y: 1\n")

    assert {"a": "top.yaml:3", "a.x": "top.yaml:3", "a.y": "shipped.yaml:3"} == origins(merged)


def test_bases_of_bases(tmp_path: Path) -> None:
    """A chain is followed, a file name relative to the document that holds it."""
    (tmp_path / "deep").mkdir()
    merged = read(
        tmp_path,
        **{"top": "base: deep/one.yaml\nc: 3\n", "deep/one": "base: ../two.yaml\nb: 2\nc: 2\n", "two": "a: 1\nb: 1\n"},
    )

    assert {"a": 1, "b": 2, "c": 3} == merged.data
    assert {"a": "deep/../two.yaml:1", "b": "deep/one.yaml:2", "c": "top.yaml:2"} == origins(merged)


def test_a_name_is_not_inherited(tmp_path: Path) -> None:
    """The base's name is its own."""
    assert {"a": 1} == read(tmp_path, top="base: shipped\n", shipped="name: x\na: 1\n").data


def test_circles_and_missing_bases_are_problems(tmp_path: Path) -> None:
    """A circle is shown whole; what is missing is named, with the likely typo."""
    circle = read(tmp_path, top="base: ./one.yaml\n", one="# one\nbase: ./top.yaml\n")
    typo = read(tmp_path, top="a: 1\nbase: shiped\n", shipped="a: 1\n")
    gone = read(tmp_path, top="base: ./gone.yaml\n")
    wrong = read(tmp_path, top="base: [x]\n")

    assert ["one.yaml:2: base: the bases go in a circle: top.yaml -> one.yaml -> top.yaml"] == lines(circle)
    assert [
        "top.yaml:2: base: found shiped; allowed a file relative to this one, or one of shipped; did you mean shipped?"
    ] == lines(typo)
    assert ["top.yaml:1: base: found ./gone.yaml; there is no such file"] == lines(gone)
    assert [
        "top.yaml:1: base: found no text; allowed the name of a shipped profile, or a file relative to this one"
    ] == lines(wrong)
    assert not any(one.complete for one in (circle, typo, gone, wrong))


def lines(document: Document) -> list[str]:
    """Return the problems as text."""
    return [str(problem) for problem in document.problems]


def test_problems_of_bases_are_kept(tmp_path: Path) -> None:
    """A base with a tab is a problem of its own file."""
    merged = read(tmp_path, top="base: shipped\na: 1\n", shipped="b:\n\tc: 1\n")

    assert ["shipped.yaml:2: indented by a tab; YAML allows spaces only"] == lines(merged)
    assert ({"a": 1}, False) == (merged.data, merged.complete)


def test_file_names_and_names() -> None:
    """A slash or a YAML suffix makes it a file."""
    assert [True, True, True, False] == [is_file_name(text) for text in ("a/b", "b.yaml", "b.yml", "b-1.2")]


TREES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES, TREES)
def test_overlaying_is_associative(low: dict, middle: dict, high: dict) -> None:  # type: ignore[type-arg]
    """A chain of mappings merges to the same from either end, as long as no scalar cuts a mapping."""
    if _same_shape(low, middle) and _same_shape(middle, high) and _same_shape(low, high):
        assert _overlaid(_overlaid(low, middle), high) == _overlaid(low, _overlaid(middle, high))


def _same_shape(one: dict, two: dict) -> bool:  # type: ignore[type-arg]
    shared = [(one[key], two[key]) for key in one.keys() & two.keys()]
    return all(
        _same_shape(a, b) if isinstance(a, dict) and isinstance(b, dict) else isinstance(a, dict) == isinstance(b, dict)
        for a, b in shared
    )
