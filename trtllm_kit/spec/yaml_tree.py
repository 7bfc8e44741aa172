"""Strict YAML: plain data, with the line and the spelling of every value, and every problem noted.

Stricter than YAML 1.1 on purpose: ``yes``, ``on``, ``010`` and ``10:20`` are text, not true, eight and 620;
duplicate keys, tags, several documents and tabs are problems; aliases may not swell a document.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from trtllm_kit.errors import storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.spec.document import DataPath, Document, Place, Problem, dotted

_MOST_BYTES = 1 << 20
_MOST_VALUES = 10_000
_MOST_LEVELS = 32
_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_NO_CHARACTERS = ("\ufffe", "\uffff")
"""Beside control characters what YAML excludes and UTF-8 can hold; a pattern of both takes long to compile."""
_LEADING_TAB = re.compile(r"^ *\t", re.MULTILINE)


def read_document(path: Path, label: str) -> Document:
    """Read one YAML file whose top is a mapping; ``label`` names it in messages. Raises ``StorageError``."""
    document = Document(label)
    text = _read_text(path, document)
    root = None if text is None else _compose(text, document)
    if isinstance(root, yaml.MappingNode):
        _build(root, document)
    elif root is not None:
        document.note(1, "the document must be a mapping, lines of `key: value`")
    document.complete = isinstance(root, yaml.MappingNode) and document.complete
    return document


def _read_text(path: Path, document: Document) -> str | None:
    """Return the text, or None after noting why it cannot be YAML."""
    try:
        raw = read_file(path, _MOST_BYTES)
    except UnfitFile as error:
        document.note(1, f"{error.unfit}: this is no such document")
        return None
    except OSError as error:
        raise storage_error(error, "reading a YAML document") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        document.note(raw.count(b"\n", 0, error.start) + 1, f"byte 0x{raw[error.start]:02x} is not UTF-8")
        return None
    odd = _control(text)
    if odd is not None:
        document.note(text.count("\n", 0, odd) + 1, f"control character U+{ord(text[odd]):04X}")
        return None
    return text


def _control(text: str) -> int | None:
    """Return where the first character is that YAML excludes; None without one."""
    found = _CONTROL.search(text)
    places = (found.start() if found else -1, *map(text.find, _NO_CHARACTERS))
    return min((place for place in places if place >= 0), default=None)


def _compose(text: str, document: Document) -> yaml.Node | None:
    """Return the root node, or None after noting what is wrong with the syntax."""
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        for line, said in _syntax_problems(error, text):
            document.note(line, said)
        return None
    except RecursionError:
        document.note(1, f"nested deeper than {_MOST_LEVELS} levels")
        return None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value == ""):
        document.note(1, "the document is empty")
        return None
    return root


def _syntax_problems(error: yaml.MarkedYAMLError, text: str) -> list[tuple[int, str]]:
    """Return line and words: every line indented by a tab when that is the trouble, else what the parser said."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    tabs = [text.count("\n", 0, found.start()) + 1 for found in _LEADING_TAB.finditer(text)]
    if line in tabs:
        return [(tab, "indented by a tab; YAML allows spaces only") for tab in tabs]
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return [(line, f"not valid YAML: {said}")]


def _build(root: yaml.MappingNode, document: Document) -> None:
    builder = _Builder(document)
    try:
        document.data = builder.mapping(root, ())
    except _TooLargeError as error:
        document.complete = False
        text = f"more than {_MOST_VALUES} values or {_MOST_LEVELS} levels deep, with aliases written out"
        document.problems.append(Problem(builder.place(error.node), text, dotted(error.path[:2])))


class _TooLargeError(Exception):
    """A document is larger than any profile can be."""

    def __init__(self, node: yaml.Node, path: DataPath) -> None:
        super().__init__()
        self.node = node
        self.path = path


class _Builder:
    """Turns nodes into plain data, noting where each stands and how it is spelled."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._values = 0

    def place(self, node: yaml.Node) -> Place:
        """Return where a node begins."""
        return Place(self._document.label, node.start_mark.line + 1)

    def mapping(self, node: yaml.MappingNode, path: DataPath) -> dict[str, Any]:
        """Return the data of a mapping; keys are text as written."""
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._note(key_node, "a key must be one word, not a list or mapping", path)
                continue
            here = (*path, str(key_node.value))
            if here[-1] in data:
                self._note(key_node, f"already set on line {self._document.places[here].line}", here)
                continue
            self._document.places[here] = self.place(key_node)
            data[str(key_node.value)] = self._value(value_node, here)
        return data

    def _value(self, node: yaml.Node, path: DataPath) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES or len(path) > _MOST_LEVELS:
            raise _TooLargeError(node, path)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in _STRUCTURE_TAGS:
            self._note(node, f"tags such as {node.tag} are not allowed", path)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        return self._sequence(node, path)

    def _sequence(self, node: yaml.Node, path: DataPath) -> tuple[Any, ...]:
        """Return a list as a tuple, which is what a strict pydantic field of a frozen model takes."""
        items = []
        for number, item in enumerate(node.value):
            here = (*path, number)
            self._document.places[here] = self.place(item)
            items.append(self._value(item, here))
        return tuple(items)

    def _scalar(self, node: yaml.ScalarNode, path: DataPath) -> str | int | float | bool | None:
        quoted = node.style in ("'", '"', "|", ">")
        self._document.spelled[path] = f'"{node.value}"' if quoted else node.value
        if node.tag != _TEXT_TAG:
            self._note(node, f"tags such as {node.tag} are not allowed", path)
        return node.value if quoted else _plain(node.value)

    def _note(self, node: yaml.Node, text: str, path: DataPath) -> None:
        self._document.problems.append(Problem(self.place(node), text, dotted(path)))


def _plain(text: str) -> str | int | float | bool | None:
    """Give an unquoted scalar its meaning; ranges, dates, versions and anything unusual stay text."""
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


_STRUCTURE_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LOADER: Any = type("_Loader", (_BASE,), {"yaml_implicit_resolvers": {}})
"""Composes nodes only; both bases are safe, the C one is ten times faster and not in every build of PyYAML."""
