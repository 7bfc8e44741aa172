"""A JSON schema in words: what a value may be, which keys a mapping has, where a stray key belongs.

The schema is the one editors get, so an error message and an editor cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]


class SchemaWords:
    """Answers about one schema, by the path of a value."""

    def __init__(self, schema: Schema) -> None:
        """Take the whole schema, with its ``$defs``."""
        self._root = schema

    def allowed(self, path: Path) -> str:
        """Say what the value at a path may be."""
        return self._words(self._at(path))

    def keys(self, path: Path) -> tuple[str, ...]:
        """Return the keys that the mapping at a path may have."""
        return tuple(self._at(path).get("properties", ()))

    def choices(self, path: Path) -> tuple[str, ...]:
        """Return the words that a value may be, when it is one of a few."""
        node = self._at(path)
        return tuple(word for one in node.get("anyOf", [node]) for word in _choices(self._resolved(one)))

    def takes_text(self, path: Path) -> bool:
        """Whether free text is what the value should be."""
        return self._at(path).get("type") == "string" and not self.choices(path)

    def homes(self, key: str) -> tuple[str, ...]:
        """Return the dotted keys whose last part is ``key``."""
        return tuple(".".join(path) for path in self._paths((), self._root) if path[-1] == key)

    def _at(self, path: Path) -> Schema:
        node = self._resolved(self._root)
        for part in path:
            name = "items" if isinstance(part, int) else "additionalProperties"
            child = node.get("properties", {}).get(part) or node.get(name) or _named(node)
            node = self._resolved(child)
        return node

    def _resolved(self, node: Schema) -> Schema:
        """Follow a reference; of a value that may be null, return its other form."""
        options = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
        if len(options) == 1:
            return self._resolved(options[0])
        if "$ref" not in node:
            return node
        definition: Schema = self._root["$defs"][node["$ref"].rsplit("/", 1)[1]]
        return definition

    def _paths(self, path: tuple[str, ...], node: Schema) -> Iterator[tuple[str, ...]]:
        for key, child in self._resolved(node).get("properties", {}).items():
            yield (*path, key)
            yield from self._paths((*path, key), child)

    def _words(self, node: Schema) -> str:
        node = self._resolved(node)
        if "anyOf" in node:
            return " or ".join(self._words(one) for one in node["anyOf"])
        if choices := _choices(node):
            return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        kind = node.get("type")
        if kind == "object":
            keys = ", ".join(node.get("properties", ()))
            inner = node.get("additionalProperties") or _named(node)
            return f"a mapping with keys of {keys}" if keys else f"a mapping of names to {self._words(inner or {})}"
        if kind == "array":
            return f"a list of {self._words(node.get('items', {}))}"
        return _scalar_words(node)


_FORMATS = {"yaml-path": "the path of a .yaml file"}
_KINDS = {
    "boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text",
    "array": "a list", "object": "a mapping", "null": "null",
}  # fmt: skip


def _named(node: Schema) -> Schema:
    """Return what the values are of a mapping whose keys have a pattern."""
    return next(iter(node.get("patternProperties", {}).values()), {})


def _choices(node: Schema) -> tuple[str, ...]:
    return tuple(str(word) for word in node.get("enum", [node["const"]] if "const" in node else []))


def _scalar_words(node: Schema) -> str:
    """Say what a number or text may be, with its limits, its pattern and examples; a named format has its own words."""
    if node.get("format") in _FORMATS:
        return _FORMATS[node["format"]]
    kind = node.get("type", "string")
    if isinstance(kind, list):
        limits = {one: _limit_words(node) if one in ("integer", "number") else "" for one in kind}
        words = [" or ".join(_KINDS[one] + limits[one] for one in kind)]
    else:
        words = [_KINDS[kind] + _limit_words(node)]
    if "pattern" in node:
        words.append(f"matching {node['pattern']}")
    if "examples" in node:
        words.append(f"such as {', '.join(str(one) for one in node['examples'])}")
    return " ".join(words)


def _limit_words(node: Schema) -> str:
    if "maximum" in node:
        return f" from {node['minimum']} to {node['maximum']}"
    if "minimum" in node:
        return f" of {node['minimum']} or more"
    if "exclusiveMinimum" in node:
        below = f" and below {node['exclusiveMaximum']}" if "exclusiveMaximum" in node else ""
        return f" above {node['exclusiveMinimum']}{below}"
    return ""
