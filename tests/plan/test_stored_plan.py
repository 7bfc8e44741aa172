"""A plan that comes from a file: read back as it was made, and refused with the place of whatever is not of a plan."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_golden import MODEL_OF, shipped_plan
from tests.support.specs import gpt_oss_120b, hardware, llama_8b, profile
from trtllm_kit.plan.conversion import ConversionRecord, conversion_of
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan

Path = tuple[str | int, ...]
EAGLE = {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "/models/head", "capture_layers": (1, 15, -1)}


@pytest.mark.parametrize("name", MODEL_OF)
def test_every_shipped_plan_is_read_back_as_it_was_made(name: str) -> None:
    """Its values are of the types that their annotations say: nothing changes on the way through JSON."""
    made = shipped_plan(name)
    text = made.model_dump_json()
    again = Plan.model_validate_json(text)
    assert text == again.model_dump_json()
    assert (made, made.digest) == (again, again.digest)


@cache
def stored() -> str:
    """Return the JSON of a plan that has every section."""
    asked = profile({
        "trtllm_version": "1.2.1",
        "toolchain": "trtllm-build",
        "speculation": EAGLE,
        "environment": {"NCCL_DEBUG": "INFO"},
        "build.options": {"gemm_plugin": "auto"},
    })  # fmt: skip
    return make_plan(llama_8b(), asked, hardware()).model_dump_json()


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the place of every value inside a document; of lists only the first item, since all are alike."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from places(item, (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from places(value[0], (*path, 0))


PLACES = tuple(places(json.loads(stored())))


def with_value(path: Path, value: object) -> dict[str, Any]:
    """Return the stored document with another value in one place."""
    document: dict[str, Any] = json.loads(stored())
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return document


def at(document: Any, path: Path) -> Any:
    """Return what stands in a place."""
    for step in path:
        document = document[step]
    return document


OF_NO_TYPE = [[None]]
"""What no value of a plan may be."""


def test_a_plan_has_all_its_sections() -> None:
    """The document that the tests here change has every optional section, so that none is left out."""
    document = json.loads(stored())
    assert [] == [name for name in ("speculation", "build", "environment") if not document[name]]
    assert len(PLACES) > 300


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_a_value_of_another_type_is_refused_with_its_place(path: Path) -> None:
    """No value of a plan is passed over: each is told when it is of no type that it may be."""
    last = next(step for step in reversed(path) if isinstance(step, str))
    with pytest.raises(ValueError, match=last):
        Plan.model_validate(with_value(path, OF_NO_TYPE))


@pytest.mark.parametrize("path", [()] + [path for path in PLACES if isinstance(at(json.loads(stored()), path), dict)])
def test_an_unknown_key_is_refused_with_its_place(path: Path) -> None:
    """A key that a plan does not have is named, wherever it stands; where keys are anybody's, its value is."""
    document = json.loads(stored())
    at(document, path)["colour"] = {"red": 1}
    with pytest.raises(ValueError, match="colour"):
        Plan.model_validate(document)


def test_a_missing_section_is_named() -> None:
    """Every section that has no default has to be there."""
    document = json.loads(stored())
    for name in ("model", "memory", "findings", "release"):
        with pytest.raises(ValueError, match=f"the document lacks {name}"):
            Plan.model_validate({key: value for key, value in document.items() if key != name})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(path=st.sampled_from(PLACES), value=JSON)
def test_whatever_stands_in_a_plan_is_read_or_refused(path: Path, value: object) -> None:
    """A plan that is read says what its document says, and a document that is none gives a ``ValueError``."""
    document = with_value(path, value)
    try:
        read = Plan.model_validate(copy.deepcopy(document))
    except ValueError:
        return
    assert Plan.model_validate(read.model_dump()) == read


def test_a_conversion_is_read_back_as_it_was_made() -> None:
    """The part of a plan that a checkpoint keeps survives its file too, experts and all."""
    record = conversion_of(make_plan(gpt_oss_120b(4), profile({"quantization.weights": "bf16"}), hardware(8)))
    assert record == ConversionRecord.model_validate_json(record.model_dump_json())
