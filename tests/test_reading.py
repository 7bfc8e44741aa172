"""Documents read as objects: what is taken, and that everything else is refused with its place."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import AfterValidator

from trtllm_kit.findings import Finding
from trtllm_kit.frozen import Frozen
from trtllm_kit.reading import Mismatch, read

T = TypeVar("T")


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value


class Colour(StrEnum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Given(Frozen, Generic[T]):
    """A value of a type that is said where it is used."""

    value: T


class Round(Frozen):
    """One of two kinds."""

    kind: Literal["round"] = "round"
    radius: float


class Square(Frozen):
    """The other."""

    kind: Literal["square", "oblong"]
    side: int


class Everything(Frozen):
    """Every form that a field of the kit has."""

    name: str
    count: int = 0
    share: float = 0.5
    on: bool = False
    word: Literal["a", 1] = "a"
    maybe: int | None = None
    items: tuple[int, ...] = ()
    named: dict[str, int] = {}  # noqa: RUF012  # nobody changes it
    looked_up: Mapping[str, Round] = {}
    colour: Colour = Colour.RED
    shape: Round | Square | None = None
    given: Given[tuple[str, ...]] | None = None
    option: bool | int | str | tuple[str, ...] = True
    even: Annotated[int, AfterValidator(_even)] = 0
    finding: Finding | None = None
    anything: Any = None


FINDING = {"rule": "PF1", "severity": "info", "message": "m", "compared": "c", "suggestion": "s"}
GOOD: list[tuple[str, object, object]] = [
    ("count", 3, 3),
    ("share", 1, 1.0),
    ("on", True, True),
    ("word", 1, 1),
    ("maybe", None, None),
    ("items", [1, 2], (1, 2)),
    ("items", (1,), (1,)),
    ("named", {"a": 1}, {"a": 1}),
    ("looked_up", {"a": {"radius": 1}}, {"a": Round(radius=1.0)}),
    ("colour", "blue", Colour.BLUE),
    ("shape", {"kind": "oblong", "side": 2}, Square(kind="oblong", side=2)),
    ("shape", Round(radius=2.0), Round(radius=2.0)),
    ("given", {"value": ["a"]}, Given(value=("a",))),
    ("option", False, False),
    ("option", 3, 3),
    ("option", ["a"], ("a",)),
    ("even", 2, 2),
    ("finding", FINDING, Finding.model_validate(FINDING)),
    ("anything", [1, {"a": None}], [1, {"a": None}]),
]
BAD: list[tuple[str, object, str]] = [
    ("name", 3, "name is 3; expected text"),
    ("count", "3", "count is '3'; expected a whole number"),
    ("count", 3.0, "count is 3.0; expected a whole number"),
    ("count", True, "count is True; expected a whole number"),
    ("count", None, "count is None; expected a whole number"),
    ("share", "1", "share is '1'; expected a finite number"),
    ("share", float("nan"), "share is nan; expected a finite number"),
    ("share", True, "share is True; expected a finite number"),
    ("share", 10**400, "expected a number that a float can hold"),
    ("on", 1, "on is 1; expected true or false"),
    ("word", "b", "word is 'b'; expected one of a, 1"),
    ("word", True, "word is True; expected one of a, 1"),
    ("word", [], "word is []; expected one of a, 1"),
    ("maybe", "x", "maybe is 'x'; expected a whole number"),
    ("items", "12", "items is '12'; expected a list"),
    ("items", [1, None], "items[1] is None; expected a whole number"),
    ("named", [1], "named is [1]; expected a mapping"),
    ("named", {"a": "b"}, "named.a is 'b'; expected a whole number"),
    ("named", {1: 1}, "a key of named is 1; expected text"),
    ("looked_up", {"a": {}}, "looked_up.a lacks radius"),
    ("colour", "green", "colour is 'green'; expected one of red, blue"),
    ("colour", [], "colour is []; expected one of red, blue"),
    ("shape", {"side": 2}, "expected a mapping whose kind is one of round, square, oblong"),
    ("shape", {"kind": ["round"], "radius": 1}, "expected a mapping whose kind is one of round, square, oblong"),
    ("shape", {"kind": "round", "side": 2}, "shape lacks radius"),
    ("shape", {"kind": "round", "radius": 1, "side": 2}, "shape has side, which it does not know"),
    ("shape", 3, "shape is 3"),
    ("given", {"value": ["a", 1]}, "given.value[1] is 1; expected text"),
    ("option", 0.5, "option is 0.5; expected true or false or a whole number or text or a list"),
    ("even", 3, "even: Value error, odd"),
    ("finding", FINDING | {"severity": "loud"}, "finding.severity: Input should be"),
    ("finding", FINDING | {"colour": 1}, "finding.colour: Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("field", "value", "held"), GOOD)
def test_a_value_of_its_type_is_taken(field: str, value: object, held: object) -> None:
    """Lists are tuples, and whole numbers stand for floats; nothing else changes its type."""
    made = read(Everything, {"name": "n", field: value})
    assert (held, type(held)) == (getattr(made, field), type(getattr(made, field)))


@pytest.mark.parametrize(("field", "value", "said"), BAD)
def test_a_value_of_another_type_is_refused(field: str, value: object, said: str) -> None:
    """The message says where it stands, what it is and what it has to be."""
    with pytest.raises(Mismatch) as caught:
        read(Everything, {"name": "n", field: value})
    assert said in str(caught.value)


def test_a_field_that_is_missing_is_named() -> None:
    """What has no default has to be there."""
    with pytest.raises(Mismatch, match="the document lacks name"):
        read(Everything, {})


def test_a_field_that_is_unknown_is_named() -> None:
    """A key of a later release, or of nobody, is never passed over; a long one is cut."""
    with pytest.raises(Mismatch, match=r"the document has x{60}\.\.\., which it does not know"):
        read(Everything, {"name": "n", "x" * 99: 1})


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_a_document_is_a_mapping(document: object) -> None:
    """Anything else is refused."""
    with pytest.raises(Mismatch, match="expected a mapping"):
        read(Everything, document)


@pytest.mark.parametrize("text", ["", "{", '{"name": "n", "name": "m"}', b"\xff", '{"name": NaN}'])
def test_text_that_is_no_document_is_refused(text: str | bytes) -> None:
    """JSON that is cut off, has two meanings, or is no text is a ``ValueError`` too."""
    with pytest.raises(ValueError):  # noqa: PT011  # what it says is the business of the JSON reader
        Everything.model_validate_json(text)
