"""Works out whole numbers of a shell, ``$((TP * PP))``, as far as its variables are known (pure)."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

_NAME = re.compile(r"[A-Za-z_]\w*")
_ARITHMETIC = re.compile(r"[\d\s+*/%()-]+")
_LONGEST = 500
_LARGEST = 1 << 40
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda one, other: _towards_zero(one, other),
    ast.Mod: lambda one, other: one - other * _towards_zero(one, other),
}


def names_in(text: str) -> list[str]:
    """Return the variables of an expression, each once."""
    return list(dict.fromkeys(_NAME.findall(text)))


def arithmetic(text: str, values: Mapping[str, str]) -> int | str:
    """Return the number of an expression, or the reason for which it cannot be read.

    ``values`` holds the text of each variable that is set; of one that cannot be read, the reason.
    """
    plain = text
    for name in names_in(text):
        if name not in values:
            return f"the variable {name} is not set in this file"
        if not re.fullmatch(r"-?\d{1,12}", values[name]):
            return f"{name} is {values[name]!r}, no number" if " " not in values[name] else values[name]
        plain = re.sub(rf"\$?\{{?\b{name}\b\}}?", f"({values[name]})", plain)
    refused = f"(({text})) is no arithmetic that can be read"
    if len(plain) > _LONGEST or not _ARITHMETIC.fullmatch(plain):
        return refused
    try:
        tree = ast.parse(re.sub(r"(?<!/)/(?!/)", "//", plain).strip(), mode="eval")
        return _number(tree.body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return refused


def _towards_zero(one: int, other: int) -> int:
    """Return the quotient as a shell rounds it."""
    size = abs(one) // abs(other)
    return size if (one < 0) == (other < 0) else -size


def _number(node: ast.expr) -> int:
    """Return the value of one node; raises ``ValueError`` for what is no sum, product or quotient of whole numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value = _OPERATORS[type(node.op)](_number(node.left), _number(node.right))
        if abs(value) < _LARGEST:
            return value
    raise ValueError
