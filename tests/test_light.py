"""The decorator that compiles nothing, held against the standard one."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import dataclass as standard
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from trtllm_kit.light import dataclass as light


@standard(frozen=True)
class Sample:
    """With every kind of field that the kit has."""

    name: str
    size: int = 3
    values: Mapping[str, int] = field(default_factory=dict)


@light(frozen=True)
class Light:
    """The same."""

    name: str
    size: int = 3
    values: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def doubled(self) -> int:
        """Kept beside the fields, and none of them."""
        return 2 * self.size


GOOD: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 4), {}),
    (("a", 4, {"b": 1}), {}),
    ((), {"name": "a"}),
    (("a",), {"values": {"b": 1}}),
    ((), {"values": {"b": 1}, "size": 0, "name": ""}),
]
BAD: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"size": 3}),
    (("a",), {"name": "b"}),
    (("a",), {"colour": "red"}),
    ((), {"size": 4, "values": {}, "colour": "red"}),
    (("a", 1, {}, 2), {}),
]


@pytest.mark.parametrize(("given", "named"), GOOD)
def test_fields_are_taken_as_the_standard_module_takes_them(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """In order, by name, by default, and made for each object."""
    made = Light(*given, **named)
    assert dataclasses.asdict(Sample(*given, **named)) == dataclasses.asdict(made)


@pytest.mark.parametrize(("given", "named"), BAD)
def test_wrong_arguments_are_refused_by_both(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """A field missing, unknown, given twice, or one too many is a ``TypeError``."""
    for kind in (Sample, Light):
        with pytest.raises(TypeError):
            kind(*given, **named)


def test_what_is_wrong_is_named() -> None:
    """The message names the field, whether it is missing or unknown."""
    with pytest.raises(TypeError, match=r"unknown: colour; missing: name"):
        Light(size=4, colour="red")  # type: ignore[call-arg]


def test_each_object_has_its_own_made_value() -> None:
    """Two objects do not share what a factory makes."""
    assert Light("a").values is not Light("a").values


def test_no_field_can_be_changed() -> None:
    """Assignment and deletion are refused, as by the standard module."""
    made = Light("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        made.size = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        del made.size
    assert 3 == made.size


def test_objects_are_compared_by_their_fields() -> None:
    """What is kept beside the fields does not count; another class is never equal."""
    one, other = Light("a"), Light("a")
    assert 6 == one.doubled
    assert one == other
    assert one not in (Light("b"), Sample("a"))


def test_equal_objects_have_one_hash() -> None:
    """They find each other in a set; an object that holds a mapping has none."""
    assert hash(Light("a", 3, ())) == hash(Light("a", 3, ()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Light("a"))


def test_the_standard_module_knows_the_class() -> None:
    """Its functions work on it, and so do pattern matching and copies."""
    made = Light("a", 4)
    assert ["name", "size", "values"] == [one.name for one in fields(made)]
    assert Light("a", 5) == replace(made, size=5)
    assert [made, made] == [copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    match made:
        case Light(name, size):
            assert ("a", 4) == (name, size)


def test_it_is_spelt_as_the_standard_module_spells_it() -> None:
    """The same text but for the name of the class."""
    assert repr(Sample("a")).replace("Sample", "Light") == repr(Light("a"))


def test_a_class_that_is_not_frozen_is_refused() -> None:
    """Only frozen classes are made here."""
    with pytest.raises(TypeError, match="frozen"):
        light(frozen=False)
