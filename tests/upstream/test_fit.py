"""Whether a value is one that a key's type takes."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.upstream.fit import fits, in_words

WORDS = ("cutlass", "cublaslt")


@pytest.mark.parametrize(
    ("value", "of_type", "allowed", "taken"),
    [
        (64, "int", (), True), ("64", "int", (), True), (64.0, "int", (), True), (64.5, "int", (), False),
        ("many", "int", (), False), (True, "int", (), False), (None, "int|null", (), True), (None, "int", (), False),
        (True, "bool", (), True), ("on", "bool", (), True), (1, "bool", (), True), (3, "bool", (), False),
        (1, "float|null", (), True), ("x", "float", (), False), (5, "str", (), False), ("x", "str|null", (), True),
        ([1, 2], "list[int]|null", (), True), ([1, "x"], "list[int]|null", (), False), (4, "list[int]", (), False),
        (["a", 1], "list[str|int]", (), True), ([[1], [2]], "list[list[int]]|str|null", (), True),
        ([["x"]], "list[list[int]]", (), False), (["cutlass"], "list[str]", WORDS, True),
        (["cuda"], "list[str]", WORDS, False), (["CUTLASS"], "list[enum]", WORDS, True), ([], "list[str]", WORDS, True),
        ({}, "mapping|null", (), True), ({"a": 1}, "int", (), False), (5, "mapping|null", (), False),
        ([1], "mapping", (), False), ("cutlass", "enum", WORDS, True), ("x", "enum|null", WORDS, False),
        ({"a": 1}, "object", (), True), ([1], "any", (), True), ("x", "mapping|str|null", (), True),
    ],
)  # fmt: skip
def test_a_value_fits_a_type_or_not(value: object, of_type: str, allowed: tuple[Any, ...], taken: bool) -> None:
    """As a release that turns texts of numbers into numbers reads it; what is not known of a kind is taken."""
    assert taken is fits(value, of_type, allowed)


def test_types_are_told_in_words() -> None:
    """Lists with what their items are."""
    assert "a whole number or null" == in_words("int|null")
    assert "a list, each item a list, each item a whole number or text or null" == in_words("list[list[int]]|str|null")
