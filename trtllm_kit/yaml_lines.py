"""Reads YAML of others with the lines of what stands in it, in one of two ways (pure).

``parse_yaml`` reads one mapping as PyYAML's safe loader does, which is what upstream reads it with. ``documents`` reads
all documents of a file as clusters do: keys are words, and so is what is no number, truth or nothing of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
"""Keys and places in lists, from the top of a document."""
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


@dataclass(frozen=True)
class Document:
    """One document of a file that may hold several."""

    value: Any
    lines: dict[Path, int]
    """Line of each value; of a text in a block its first line."""

    def line(self, path: Path) -> int:
        """Return the line of a value, or of what holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: Path) -> Any:
        """Return what lies at a place; None where there is nothing."""
        value = self.value
        for key in path:
            if isinstance(value, Mapping):
                value = value.get(key)
            else:
                value = value[key] if isinstance(value, list) and isinstance(key, int) and key < len(value) else None
        return value


def parse_yaml(raw: bytes) -> Yaml:
    """Return the document in the bytes; an empty one is an empty mapping. Raises ``YamlError``."""
    with _told():
        return _read(_text(raw))


def documents(raw: bytes) -> list[Document]:
    """Return the documents of a file that hold something. Raises ``YamlError``."""
    with _told():
        nodes = [node for node in yaml.compose_all(_text(raw), Loader=_LOADER) if node is not None]
        for node in nodes:
            _bound(node)
        return [one for node in nodes for one in _document(node)]


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlError(line, f"byte 0x{raw[error.start]:02x} is not UTF-8") from None


@contextmanager
def _told() -> Iterator[None]:
    """Say with its line what a loader has against a text."""
    try:
        yield
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(mark.line + 1 if mark else 1, said) from None
    except yaml.YAMLError as error:
        raise YamlError(1, str(error).splitlines()[0]) from None
    except RecursionError:
        raise YamlError(1, f"nested deeper than {MOST_LEVELS} levels") from None
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        # what a loader makes of 2024-13-45, of a list as a key, of !!int without a number, of !!timestamp x
        raise YamlError(1, f"a value is not of its tag or form: {error}") from None


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


def _document(node: yaml.Node) -> Iterator[Document]:
    lines: dict[Path, int] = {}
    value = _plain(node, (), lines)
    if value not in (None, {}, []):
        yield Document(value, lines)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    """Return a value as JSON has it, and note where it and what it holds stand."""
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return {key: _plain(inner, (*path, key), lines) for key, inner in _pairs(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(inner, (*path, at), lines) for at, inner in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        lines[path] += 1
    return _scalar(node)


def _pairs(node: yaml.MappingNode) -> list[tuple[str, yaml.Node]]:
    """Return the keys of a mapping with their values: those that it takes over (``<<``) first, which its own change."""
    own, taken = list[tuple[str, yaml.Node]](), list[tuple[str, yaml.Node]]()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise YamlError(key.start_mark.line + 1, "a key that is no word")
        if not key.tag.endswith(":merge"):
            own.append((str(key.value), value))
            continue
        several = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for one in reversed(several):
            taken += _pairs(one) if isinstance(one, yaml.MappingNode) else []
    return [*taken, *own]


def _scalar(node: yaml.Node) -> Any:
    """Return a scalar as a safe loader does; as text where it makes none of it."""
    kind = node.tag.rpartition(":")[2]
    try:
        if kind == "int":
            return int(str(node.value).replace("_", ""), 0)
        if kind == "float":
            return float(node.value)
    except ValueError:
        return str(node.value)
    if kind == "null":
        return None
    return str(node.value).lower() in ("true", "yes", "on") if kind == "bool" else str(node.value)


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
