"""Changes a YAML text where its data changes, and leaves every other character as somebody wrote it (pure)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trtllm_kit.light import dataclass
from trtllm_kit.yaml_lines import YamlError, parse_yaml

Moves = Mapping[str, str]
"""Dotted key -> the dotted key that took its place."""


@dataclass(frozen=True)
class Edited:
    """The text afterwards."""

    text: str
    anew: bool = False
    """Whether it had to be written anew, without the comments inside, because of anchors or the like."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Entry:
    """A key of a block mapping with its value."""

    key: Any
    key_node: yaml.Node
    node: yaml.Node
    last: int
    """Index of the last line of its value."""


def edited(text: str, after: Mapping[str, Any], moves: Moves) -> Edited:
    """Return the text of a mapping with the data of ``after``; comments of a key go with it to its new place.

    The result holds exactly ``after``. Raises ``YamlError`` for a text that is no mapping.
    """
    before = parse_yaml(text.encode()).data
    if before == after:
        return Edited(text)
    try:
        made = _Text(text, moves).changed(before, after)
    except (
        yaml.YAMLError,
        KeyError,
        ValueError,
    ):  # merged keys, and what one of PyYAML's parsers takes and one refuses
        made = None
    if made is not None and _holds(made, after):
        return Edited(made)
    return Edited(_head(text) + yaml.safe_dump(copy.deepcopy(dict(after)), sort_keys=False, width=120), anew=True)


class _Text:
    """A text and the changes of it."""

    def __init__(self, text: str, moves: Moves) -> None:
        self.text, self.moves = text, moves
        self.came_from = {new: old for old, new in moves.items()}
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.edits: list[_Edit] = []
        self.comments: dict[str, tuple[list[str], str]] = {}

    def changed(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
        """Return the text with the changes between two states of its data; None where it has no lines to change."""
        root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        if root is None:
            body = "".join(f"{line}{self.newline}" for line in self._block(after, "", ""))
            return self._ended() + body
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            return None
        self._note_comments(root, "")
        self._mapping(root, before, after, "")
        if not after:
            self._insert(len(self.lines), ["{}"])
        return self._applied()

    def _mapping(
        self, node: yaml.MappingNode, before: Mapping[str, Any], after: Mapping[str, Any], prefix: str
    ) -> None:
        entries = list(self._entries(node))
        indent = " " * node.start_mark.column
        names: dict[Any, _Entry] = {}
        for entry in entries:
            new = self._new_name(entry.key, before, after, prefix)
            if new is None:
                self._delete(entry, f"{prefix}{entry.key}")
                continue
            names[new] = entry
            if new != entry.key:
                self.edits.append(_Edit(entry.key_node.start_mark.index, entry.key_node.end_mark.index, str(new)))
            self._value(entry, before[entry.key], after[new], f"{prefix}{new}")
        self._add(entries, names, after, (prefix, indent))

    def _value(self, entry: _Entry, before: Any, after: Any, key: str) -> None:
        if before == after and type(before) is type(after):
            return
        node = entry.node
        block = isinstance(node, yaml.MappingNode) and not node.flow_style
        if (
            isinstance(node, yaml.MappingNode)
            and block
            and after
            and isinstance(before, Mapping)
            and isinstance(after, Mapping)
        ):
            self._mapping(node, before, after, f"{key}.")
        elif isinstance(after, Mapping) and after and not isinstance(before, Mapping):
            self._replace(entry, "")
            inner = " " * (entry.key_node.start_mark.column + 2)
            self._insert(entry.last + 1, self._block(after, inner, f"{key}."))
        else:
            self._replace(entry, f" {_flow(after)}")

    def _replace(self, entry: _Entry, value: str) -> None:
        """Put another value behind the colon of a key."""
        start = self.text.index(":", entry.key_node.end_mark.index) + 1
        self.edits.append(_Edit(start, max(start, self._end(entry.node)), value))

    def _delete(self, entry: _Entry, key: str) -> None:
        first = entry.key_node.start_mark.line
        if self.moves.get(key):
            first -= len(self.comments.get(key, ([], ""))[0])
        self.edits.append(_Edit(self.starts[first], self.starts[entry.last + 1], ""))

    def _add(
        self, entries: list[_Entry], names: Mapping[Any, _Entry], after: Mapping[str, Any], at: tuple[str, str]
    ) -> None:
        """Insert keys that are new: where the first one stood that they hold, else behind the key before them."""
        prefix, indent = at
        behind = entries[0].key_node.start_mark.line - 1 if entries else len(self.lines) - 1
        for key, value in after.items():
            if key in names:
                behind = names[key].last
                continue
            left = self._left_for(f"{prefix}{key}", entries, prefix)
            behind = behind if left is None or left.key in names else left.last
            self._insert(behind + 1, self._block({key: value}, indent, prefix))

    def _left_for(self, key: str, entries: list[_Entry], prefix: str) -> _Entry | None:
        """Return the first entry of a mapping that went into a new key, or something inside of it."""
        went = {old for old, new in self.moves.items() if new == key or new.startswith(f"{key}.")}
        return next((entry for entry in entries if f"{prefix}{entry.key}" in went), None)

    def _block(self, mapping: Mapping[Any, Any], indent: str, prefix: str) -> list[str]:
        """Return a mapping as lines, with the comments of the keys that came from elsewhere."""
        lines = []
        for key, value in mapping.items():
            above, beside = self.comments.get(self.came_from.get(f"{prefix}{key}", ""), ([], ""))
            lines += [f"{indent}{comment.strip()}" for comment in above]
            name = _flow(key)
            if isinstance(value, Mapping) and value:
                lines.append(f"{indent}{name}:{beside}")
                lines += self._block(value, f"{indent}  ", f"{prefix}{key}.")
            else:
                lines.append(f"{indent}{name}: {_flow(value)}{beside}")
        return lines

    def _new_name(self, key: Any, before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Any:
        """Return under which name a key stays in its mapping; None where it leaves it."""
        if key in after:
            return key
        moved = self.moves.get(f"{prefix}{key}", "")
        section, _, name = moved.rpartition(".")
        return name if moved and f"{section}." == (prefix or ".") and name in after and name not in before else None

    def _entries(self, node: yaml.MappingNode) -> Iterator[_Entry]:
        loader = yaml.SafeLoader("")
        for key, value in node.value:
            yield _Entry(loader.construct_object(key, deep=True), key, value, self._last_line(key, value))

    def _last_line(self, key: yaml.Node, value: yaml.Node) -> int:
        end = max(self._end(value), key.end_mark.index)
        return self._line_of(end - 1) if end and self.text[end - 1 : end] == "\n" else self._line_of(end)

    def _line_of(self, index: int) -> int:
        return next((number for number, start in enumerate(self.starts[1:]) if index < start), len(self.lines) - 1)

    def _end(self, node: yaml.Node) -> int:
        """Return where a value ends, without the comments that a parser reads on over."""
        inside = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and inside:
            return max(self._end(one) for one in inside)
        return int(node.end_mark.index)

    def _note_comments(self, node: yaml.MappingNode, prefix: str) -> None:
        """Note the comment lines right above each key, and what stands behind its value on the same line."""
        for entry in self._entries(node):
            dotted = f"{prefix}{entry.key}"
            first = entry.key_node.start_mark.line
            above = first
            while above and self.lines[above - 1].lstrip().startswith("#"):
                above -= 1
            if above == 0 and first:  # the head of the file speaks of the whole
                above = first
            self.comments[dotted] = (self.lines[above:first], self._beside(entry))
            if isinstance(entry.node, yaml.MappingNode) and not entry.node.flow_style:
                self._note_comments(entry.node, f"{dotted}.")

    def _beside(self, entry: _Entry) -> str:
        line = entry.key_node.start_mark.line
        block = isinstance(entry.node, yaml.CollectionNode) and not entry.node.flow_style and entry.node.value
        end = self.text.find(":", entry.key_node.end_mark.index) + 1 if block else self._end(entry.node)
        rest = self.text[end : self.starts[line + 1]].rstrip()
        return f"  {rest.strip()}" if rest.strip().startswith("#") else ""

    def _insert(self, line: int, lines: list[str]) -> None:
        at = self.starts[min(line, len(self.lines))]
        body = "".join(f"{one}{self.newline}" for one in lines)
        cut = at and at == len(self.text) and not self.text.endswith("\n")
        self.edits.append(_Edit(at, at, (self.newline if cut else "") + body))

    def _ended(self) -> str:
        return self.text if not self.text or self.text.endswith("\n") else self.text + self.newline

    def _applied(self) -> str:
        text, at = [], 0
        for edit in sorted(self.edits, key=lambda one: (one.start, one.end)):
            if edit.start < at:
                continue
            text += [self.text[at : edit.start], edit.text]
            at = edit.end
        return "".join((*text, self.text[at:]))


def _holds(text: str, after: Mapping[str, Any]) -> bool:
    try:
        return parse_yaml(text.encode()).data == after
    except YamlError:
        return False


def _head(text: str) -> str:
    """Return the comments and empty lines that a text begins with."""
    lines = text.splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "".join(lines[:end])


def _flow(value: Any) -> str:
    """Return a value on one line."""
    plain = _plain(value)
    return (
        str(yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=1 << 20))
        .removesuffix("...\n")
        .strip()
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
