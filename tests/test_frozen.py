"""The base of facts and decisions: what an object refuses, how it is compared, what its document is."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.frozen import Frozen


class Part(Frozen):
    """A part of a whole."""

    ratio: float
    limit: float | None = None


class Whole(Frozen):
    """Something with parts."""

    name: str
    parts: tuple[Part, ...] = ()
    finding: Finding | None = None


class Larger(Whole):
    """A whole with one more field, and another default."""

    size: int
    name: str = "large"


def test_fields_are_those_of_the_bases_first() -> None:
    """A document begins with what the base declares; a field that is declared again keeps its place."""
    assert ("name", "parts", "finding", "size") == Larger.field_names
    assert ["name", "parts", "finding", "size"] == list(Larger(size=1).model_dump())


def test_a_class_may_give_a_field_of_its_base_a_default() -> None:
    """What the base needs need not be said then."""
    assert "large" == Larger(size=1).name


@pytest.mark.parametrize("fields", [{}, {"name": "a", "colour": "red"}, {"name": "a", "_hashed": 1}])
def test_fields_that_are_missing_or_unknown_are_refused(fields: dict[str, Any]) -> None:
    """Every field without a default is needed, and no other is taken."""
    with pytest.raises(TypeError, match=r"Whole: missing or unknown: (name|colour|_hashed)"):
        Whole(**fields)


def test_nothing_of_an_object_can_be_changed() -> None:
    """Objects are shared, so no field can be set or taken away."""
    part = Part(ratio=0.5)
    with pytest.raises(AttributeError, match="ratio"):
        part.ratio = 1.0  # type: ignore[misc]
    with pytest.raises(AttributeError, match="ratio"):
        del part.ratio
    assert 0.5 == part.ratio


def test_whole_numbers_in_fields_of_floats_are_floats() -> None:
    """One number has one spelling in a document, so that its digest does not depend on who wrote it."""
    assert '{"ratio":1.0,"limit":2.0}' == Part(ratio=1, limit=2).model_dump_json()


def test_objects_are_compared_by_type_and_values() -> None:
    """Equal values make equal objects with one hash, unless they are of two types."""
    one, other = Whole(name="a", parts=(Part(ratio=1),)), Whole(name="a", parts=(Part(ratio=1.0),))
    assert (one, hash(one)) == (other, hash(other))
    assert one != Whole(name="b")
    assert Whole(name="large") != Larger(size=1)


def test_a_copy_with_other_values_leaves_the_original() -> None:
    """The copy has the new value and its own hash; an unknown field is refused."""
    one = Whole(name="a")
    before = hash(one)
    other = one.model_copy(update={"name": "b"})
    assert ("a", "b", before) == (one.name, other.name, hash(one))
    assert hash(Whole(name="b")) == hash(other)
    with pytest.raises(TypeError, match="colour"):
        one.model_copy(update={"colour": "red"})


def test_copies_of_a_hashed_object_are_equal() -> None:
    """Pickling and deep copies take the values, and not the hash, which another process would have otherwise."""
    one = Whole(name="a", parts=(Part(ratio=1),))
    assert isinstance(hash(one), int)
    assert [one, one] == [copy.deepcopy(one), pickle.loads(pickle.dumps(one))]


def test_an_object_with_a_mapping_has_no_hash() -> None:
    """A mapping can change, so nothing is kept under it."""

    class Named(Frozen):
        """Holds a mapping."""

        values: dict[str, int]

    with pytest.raises(TypeError, match="unhashable"):
        hash(Named(values={}))


def test_a_document_is_made_of_what_json_has() -> None:
    """Objects inside objects, tuples, enumerations and pydantic's models all become JSON's own types."""
    finding = Finding(rule="PF1", severity=Severity.INFO, message="m", compared="c", suggestion="s")
    whole = Whole(name="a", parts=(Part(ratio=1),), finding=finding)
    document = whole.model_dump()
    assert json.loads(json.dumps(document)) == document
    assert "info" == document["finding"]["severity"]
    assert whole == Whole.model_validate(document)


def test_an_object_is_spelt_as_it_is_made() -> None:
    """What a test or a trace shows can be read as code."""
    assert "Part(ratio=0.5, limit=None)" == repr(Part(ratio=0.5))
