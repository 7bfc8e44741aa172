"""Reads YAML documents as plain values with the line of each, those in lists too (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from trtllm_kit.light import dataclass
from trtllm_kit.lint.yaml_text import MOST_LEVELS, MOST_NODES, YamlError

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """One document of a file."""

    value: Any
    lines: dict[Path, int]
    """Line of each value by its keys and places in lists; of a text in a block its first line."""

    def line(self, path: Path) -> int:
        """Return the line of a value, or of what holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def documents(raw: bytes) -> list[Document]:
    """Return the documents of a file that hold something; raises ``YamlError``."""
    try:
        text = raw.decode("utf-8-sig")
        return [one for node in yaml.compose_all(text, Loader=_LOADER) if node is not None for one in _document(node)]
    except UnicodeDecodeError as error:
        raise YamlError(raw.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, str(error.problem or error.context)) from None
    except yaml.YAMLError as error:
        raise YamlError(1, str(error).splitlines()[0]) from None
    except RecursionError:
        raise YamlError(1, f"nested deeper than {MOST_LEVELS} levels") from None


def _document(node: yaml.Node) -> Iterator[Document]:
    lines: dict[Path, int] = {}
    value = _plain(node, (), lines, [0])
    if value not in (None, {}, []):
        yield Document(value, lines)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], count: list[int]) -> Any:
    count[0] += 1
    if count[0] > MOST_NODES or len(path) > MOST_LEVELS:
        raise YamlError(node.start_mark.line + 1, f"it holds more than {MOST_NODES} values, or {MOST_LEVELS} levels")
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(key.start_mark.line + 1, "a key that is no word")
        pairs = [(str(key.value), inner) for key, inner in node.value]
        return {key: _plain(inner, (*path, key), lines, count) for key, inner in pairs}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(inner, (*path, at), lines, count) for at, inner in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        lines[path] += 1
    return _scalar(node)


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
