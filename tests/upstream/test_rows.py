"""Rows of upstream tables: what their objects refuse, and that every row of every table is of its type."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from pydantic import ConfigDict, ValidationError, create_model

import trtllm_kit.upstream
from trtllm_kit.frozen import Frozen
from trtllm_kit.upstream import facts, triton
from trtllm_kit.upstream.facts import Fact, read_table, spelt_out

MODULES = [
    importlib.import_module(f"trtllm_kit.upstream.{module.name}")
    for module in pkgutil.iter_modules(trtllm_kit.upstream.__path__)
]


class Sample(Fact):
    """A row of a table that there is not."""

    name: str
    size: int = 3


FACT = {"certainty": "read", "source": "somewhere"}


def test_a_row_has_its_defaults() -> None:
    """Fields that the table leaves out hold the default of the class or of its base."""
    row = Sample(name="a", **FACT)  # type: ignore[arg-type]
    assert ("a", 3, None, ()) == (row.name, row.size, row.since, row.read_in)


@pytest.mark.parametrize("fields", [{}, {"name": "a", "colour": "red"}])
def test_a_row_refuses_fields_that_are_missing_or_unknown(fields: dict[str, Any]) -> None:
    """Every field without a default is needed, and no other is taken."""
    with pytest.raises(TypeError, match=r"missing or unknown: (name|colour)"):
        Sample(**fields, **FACT)


def test_no_field_of_a_row_can_be_changed() -> None:
    """Rows are shared by everybody who asks, so they stay as they are."""
    row = Sample(name="a", **FACT)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="size"):
        row.size = 4  # type: ignore[misc]
    assert (4, 3) == (row.model_copy(update={"size": 4}).size, row.size)


def test_rows_are_compared_by_type_and_values() -> None:
    """Two rows with the same values are one, unless they are of two types."""
    one, other = (Sample(name="a", **FACT) for _ in range(2))  # type: ignore[arg-type]
    assert (one, hash(one)) == (other, hash(other))
    assert one != other.model_copy(update={"size": 4})
    assert one != Fact(**FACT)  # type: ignore[arg-type]


def test_lists_of_a_table_are_tuples_and_number_keys_numbers() -> None:
    """JSON has neither tuples nor keys that are numbers; rows have both."""
    assert {"a": (1, (2,)), "b": {8: (1,), "x": 2}} == facts.held({"a": [1, [2]], "b": {"8": [1], "x": 2}})


def calls_of_rows(module: ModuleType) -> Iterator[tuple[str, str, type[Fact]]]:
    """Yield table, section and row type of every call of ``rows`` in a module's source."""
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "rows":
            continue
        table, section, row_type = (
            arg.value if isinstance(arg, ast.Constant) else getattr(module, getattr(arg, "id", ""), "")
            for arg in call.args
        )
        if section:  # else a variable, whose values stand in BY_VARIABLE
            yield str(table), str(section), row_type


BY_VARIABLE = [("triton_llmapi", "inputs", triton.Tensor), ("triton_llmapi", "outputs", triton.Tensor)]
READ = [*(call for module in MODULES for call in calls_of_rows(module)), *BY_VARIABLE]


def validated(row_type: type[Frozen], row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row as its type's annotations have them; raises ``ValidationError``."""
    fields: dict[str, Any] = {
        name: (hint, getattr(row_type, name, ...))
        for name, hint in get_type_hints(row_type).items()
        if name in row_type.field_names
    }
    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    return dict(vars(create_model(row_type.__name__, __config__=strict, **fields).model_validate(row)))


@pytest.mark.parametrize(("table", "section", "row_type"), READ, ids=lambda one: getattr(one, "__name__", one))
def test_every_row_is_of_its_type(table: str, section: str, row_type: type[Fact]) -> None:
    """The values of each row are what the annotations of its class say, none is missing, and none is unknown."""
    made = facts.rows(table, section, row_type)
    document = read_table(table)
    assert len(document[section]) == len(made)
    for row, entry in zip(made, document[section], strict=True):
        assert validated(row_type, facts.held(spelt_out(entry, document))) == vars(row), entry


def test_every_metric_family_is_of_its_type() -> None:
    """Rows inside rows, which the triton table alone has, are checked too."""
    for family in triton.metric_families():
        assert validated(triton.MetricFamily, vars(family)) == vars(family)
        for value in family.values:
            assert validated(triton.MetricValue, vars(value)) == vars(value)


def test_most_sections_are_read_by_some_function() -> None:
    """Reading the calls from the source misses none: a check of the check above."""
    assert {"failures", "keys", "flags", "precision", "activations", "releases"} <= {section for _, section, _ in READ}
    assert len(READ) > 60


def test_a_value_of_another_type_is_found() -> None:
    """The check refuses a text where a row has a number, and a word that is not of the list."""
    for wrong in ({"size": "3"}, {"certainty": "sure"}, {"colour": "red"}):
        with pytest.raises(ValidationError):
            validated(Sample, {"name": "a", **FACT, **wrong})
