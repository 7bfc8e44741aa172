"""Reads YAML as PyYAML's safe loader does, which is what upstream reads it with, and notes where each key stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MOST_NODES = 20_000
MOST_LEVELS = 64


class YamlError(ValueError):
    """The text is no YAML mapping that a loader takes; ``line`` is where that shows."""

    def __init__(self, line: int, said: str) -> None:
        """Carry the line and what is wrong there."""
        super().__init__(f"line {line}: {said}")
        self.line, self.said = line, said


@dataclass(frozen=True)
class Yaml:
    """One document."""

    data: dict[str, Any]
    places: dict[str, int] = field(default_factory=dict)
    """Dotted key -> line."""
    twice: tuple[tuple[str, int, int], ...] = ()
    """Dotted keys that stand twice, with both lines; a loader takes the last."""


def parse_yaml(raw: bytes) -> Yaml:
    """Return the document in the bytes; an empty one is an empty mapping. Raises ``YamlError``."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError(line, f"byte 0x{raw[error.start]:02x} is not UTF-8") from None
    try:
        return _read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(mark.line + 1 if mark else 1, said) from None
    except yaml.YAMLError as error:
        raise YamlError(1, str(error).splitlines()[0]) from None
    except RecursionError:
        raise YamlError(1, f"nested deeper than {MOST_LEVELS} levels") from None
    except (ValueError, TypeError, OverflowError) as error:  # what a loader makes of 2024-13-45, or of a list as a key
        if isinstance(error, YamlError):
            raise
        raise YamlError(1, str(error)) from None


def _read(text: str) -> Yaml:
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Yaml({})
        _bound(root)
        if not isinstance(root, yaml.MappingNode):
            raise YamlError(root.start_mark.line + 1, "it holds no mapping, lines of `key: value`")
        keys = list(_keys(root, ""))
        data = loader.construct_document(root)
    finally:
        loader.dispose()
    places: dict[str, int] = {}
    twice = []
    for key, line in keys:
        if key in places:
            twice.append((key, places[key], line))
        places[key] = line
    return Yaml({str(key): value for key, value in data.items()}, places, tuple(twice))


def _bound(root: yaml.Node) -> None:
    """Refuse a document that aliases swell or that nests too deep, before anything walks over it."""
    level, count = [root], 0
    for _ in range(MOST_LEVELS):
        count += len(level)
        if count > MOST_NODES:
            raise YamlError(1, f"it holds more than {MOST_NODES} values, with aliases written out")
        level = [inner for node in level for inner in _inside(node)]
        if not level:
            return
    raise YamlError(1, f"nested deeper than {MOST_LEVELS} levels")


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [inner for pair in node.value for inner in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _keys(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            continue
        dotted = f"{prefix}{key.value}"
        yield dotted, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, f"{dotted}.")


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
