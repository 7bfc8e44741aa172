"""An LLM-API document of one release as that of another: every change a row, nothing dropped in silence (pure)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from trtllm_kit.findings import Finding
from trtllm_kit.light import dataclass
from trtllm_kit.migrate.release.change import UNSAID, How, Row
from trtllm_kit.migrate.release.keys import (
    Leaf,
    Way,
    get,
    gone,
    is_set,
    leaves,
    less_certain,
    may_take,
    older_name,
    put,
    row_of,
    tags_of,
    takes,
    way,
)
from trtllm_kit.upstream.defaults import default_of, governed_by, word_instead
from trtllm_kit.upstream.facts import Certainty
from trtllm_kit.upstream.fit import equal, fits, is_word
from trtllm_kit.upstream.llm_api import limits_section, releases_with_key, value_without_key
from trtllm_kit.upstream.llm_api_inside import TAGS, kinds_of
from trtllm_kit.upstream.renames import renames

LIMITS = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width")
"""Settings whose place, top level or a section, depends on the release."""


_INERT = "it has no effect while what it belongs to is off, and cannot be kept for the day that it is switched on"


@dataclass(frozen=True)
class Moved:
    """A document of the other release."""

    document: dict[str, Any]
    rows: tuple[Row, ...]


def move(document: Mapping[str, Any], source: str, target: str, *, keep_behaviour: bool = True) -> Moved:
    """Return a document of release ``source`` as one of ``target``.

    With ``keep_behaviour`` what the document leaves to a default that differs between the two is made explicit.
    Keys that ``source`` does not take are moved where a later or earlier release has them, and else stay as they are.
    """
    if source == target:
        return Moved(dict(document), ())
    made = _Made(document, source, target)
    for leaf in leaves(document):
        made.take(leaf)
    made.keep_emptied_sections()
    if keep_behaviour:
        from trtllm_kit.migrate.release.defaults import made_explicit

        made.rows += made_explicit(document, made.document, source, target)
    return Moved(made.document, tuple(made.rows))


def problems(document: Mapping[str, Any], release: str) -> tuple[Finding, ...]:
    """Return what the release that a document is for has against its keys and values."""
    from trtllm_kit.plan.given.documents import keys
    from trtllm_kit.plan.given.values import values

    return (*keys(document, release), *values(document, release))


class _Made:
    """A document in the making."""

    def __init__(self, given: Mapping[str, Any], source: str, target: str) -> None:
        self.given, self.source, self.target = given, source, target
        self.document: dict[str, Any] = {}
        self.rows: list[Row] = []
        self.tags = tags_of(given)
        self.new_tags = {key: _new_word(key, value, target) for key, value in self.tags.items()}
        self.off = _switched_off_by(given, source, target)
        self.without_kind = {section for section in TAGS if self._kind_is_gone(section)}
        for section in self.without_kind:
            self._lose_section(section)

    def take(self, leaf: Leaf) -> None:
        """Put one setting where the target has it, or say what becomes of it."""
        if leaf.key.partition(".")[0] in self.without_kind:
            return
        limit = self._limit(leaf)
        if limit is not None:
            self._place(leaf, limit, leaf.value, How.EXACT, self._why_limit(limit), "read")
        elif (older := older_name(leaf, self.new_tags, self.source, self.target)) is not None:
            self._place_there(leaf, older)
        elif takes(self.target, leaf, self.new_tags):
            self._keep(leaf)
        elif not self._in_another_word(leaf):
            self._elsewhere(leaf)

    def keep_emptied_sections(self) -> None:
        """Leave a section there whose settings all went, where being there is what switches it on."""
        for section, content in self.given.items():
            row = row_of(self.target, section, {})
            if not isinstance(content, Mapping) or row is None or "null" not in row.type.split("|"):
                continue
            went = any(one.to and one.key.startswith(f"{section}.") for one in self.rows)
            if section not in self.document and section not in self.without_kind | self.off and not went:
                self.document[section] = {}

    def _keep(self, leaf: Leaf) -> None:
        value, row = leaf.value, row_of(self.target, leaf.key, self.new_tags)
        if leaf.there:
            self._place(leaf, leaf.key, {}, How.EXACT, "", "read")
            return
        if row is None or fits(value, row.type, row.allowed):
            how, why = self._silently_changed(leaf)
            self._place(leaf, leaf.key, value, how, why, "read")
            return
        if self._in_another_word(leaf) or self._in_part(leaf, row.allowed):
            return
        if value is None:
            self._drop(leaf, How.EXACT, "null is what holds without the key, and may not be written there", "near")
        else:
            taken = f"it takes {', '.join(map(str, row.allowed))}" if row.allowed else f"it takes {row.type}"
            self._drop(leaf, How.LOST, f"{self.target} does not take that value; {taken}", row.certainty)

    def _in_another_word(self, leaf: Leaf) -> bool:
        """Put a value in the word that the target has for it; whether it has one."""
        word = word_instead(leaf.key, leaf.value, self.target)
        if word is not None and not takes(self.target, Leaf(leaf.key, word.new), self.new_tags):
            return False
        if word is not None:
            how = How.EXACT if word.exact else How.APPROXIMATE
            why = word.note or f"{self.target} has that word for it"
            self._place(leaf, leaf.key, word.new, how, why, word.certainty)
        return word is not None

    def _in_part(self, leaf: Leaf, allowed: tuple[Any, ...]) -> bool:
        """Keep the words of a list that the target has; whether some are left."""
        kept = [one for one in leaf.value if is_word(one, allowed)] if isinstance(leaf.value, list) else []
        if kept:
            others = ", ".join(str(one) for one in leaf.value if one not in kept)
            self._place(leaf, leaf.key, kept, How.APPROXIMATE, f"{self.target} does not have {others}", "read")
        return bool(kept)

    def _elsewhere(self, leaf: Leaf) -> None:
        found = way(leaf, self.new_tags, self.target)
        surely = found is not None and takes(self.target, Leaf(found.key, found.value), self.new_tags)
        if not surely and (may_take(self.target, leaf, self.new_tags) or self._stays_though_unknown(leaf)):
            self._keep(leaf)
            return
        if found is not None:
            self._place_there(leaf, found)
        elif not self._by_choice(leaf):
            self._gone(leaf)

    def _place_there(self, leaf: Leaf, found: Way) -> None:
        """Put a setting where a rename leads, in the word that the target has for its value."""
        row, word = row_of(self.target, found.key, self.new_tags), word_instead(found.key, found.value, self.target)
        exact, value = found.exact and (word is None or word.exact), found.value if word is None else word.new
        if row is None or value in (None, {}) or fits(value, row.type, row.allowed):
            why = found.why + (f"; {word.note}" if word is not None and word.note else "")
            self._place(leaf, found.key, value, How.EXACT if exact else How.APPROXIMATE, why, found.certainty)
            return
        taken = ", ".join(map(str, row.allowed)) or row.type
        self._drop(
            leaf, How.LOST, f"{found.key} of {self.target} does not take that value; it takes {taken}", row.certainty
        )

    def _by_choice(self, leaf: Leaf) -> bool:
        """Settle a setting that governs a choice which another key has in the target; whether it was one."""
        was = governed_by(leaf.key, self.source)
        now = default_of(was.name, self.target) if was else None
        if was is None or now is None:
            return False
        word = was.word(leaf.value)
        can, value = now.says(word)
        if now.does == word and type(now.does) is type(word):
            section = Leaf(now.key.partition(".")[0], {} if "." in now.key else leaf.value)
            kept = is_set(self.given, was.needs) and takes(self.target, section, {})
            how = How.EXACT if kept else How.APPROXIMATE
            self._drop(leaf, how, f"{self.target} does so without a key ({was.name})", now.certainty)
        elif can and takes(self.target, Leaf(now.key, value), self.new_tags):
            self._place(leaf, now.key, value, How.EXACT, f"it is {now.key} there", now.certainty)
        else:
            does = f"{self.target} has no key for it ({was.name}): it does {_shown(now.does)}"
            self._drop(leaf, How.LOST, does, now.certainty)
        return True

    def _gone(self, leaf: Leaf) -> None:
        """Drop a setting that has no place in the target."""
        row, known = gone(leaf.key, self.target), row_of(self.source, leaf.key, self.tags)
        if row is not None and (row.always or row.change == "none"):
            if any(leaf.value == one and type(leaf.value) is type(one) for one in row.always):
                self._drop(leaf, How.EXACT, f"{row.old} {row.message}", row.certainty)
                return
        elif equal(leaf.value, value_without_key(self.target, leaf.key)):
            self._drop(leaf, How.EXACT, f"{self.target} always does so", "near")
            return
        elif leaf.there or (known is not None and known.type != "const" and _is_default(leaf.value, known)):
            self._drop(leaf, How.EXACT, "it is what holds without the key", "near")
            return
        others = releases_with_key(leaf.key)
        why = f"{row.old} {row.message}" if row is not None else f"{self.target} has no such key"
        if row is None and others:
            why += f"; {', '.join(others)} have it"
        self._drop(leaf, How.LOST, why, row.certainty if row else "read")

    def _limit(self, leaf: Leaf) -> str | None:
        """Return where the target has a limit that took effect; None for anything else, or where it has it already."""
        before, after = limits_section(self.source), limits_section(self.target)
        name = leaf.key.rpartition(".")[2]
        if before == after or name not in LIMITS or leaf.key != _in(before, name):
            return None
        return _in(after, name)

    def _why_limit(self, to: str) -> str:
        return (
            f"{self.target} goes by {to}, and trtllm-serve overwrites it elsewhere"
            if "." in to
            else (f"{self.target} has its limits at the top level")
        )

    def _silently_changed(self, leaf: Leaf) -> tuple[How, str]:
        """Say that a setting which stays begins to matter, or no longer does."""
        before, after = limits_section(self.source), limits_section(self.target)
        if before != after and leaf.key in (_in(after, name) for name in LIMITS):
            other = _in(before, leaf.key.rpartition(".")[2])
            return How.APPROXIMATE, f"in {self.source} {other} went before it; {self.target} goes by it"
        return How.EXACT, ""

    def _place(self, leaf: Leaf, to: str, value: Any, how: How, why: str, certainty: Certainty) -> None:
        if self._is_off(to):
            self._drop(leaf, How.APPROXIMATE, _INERT, certainty)
            return
        there, held = get(self.document, to)
        if there and leaf.there:
            return
        if there and not (value == {} and isinstance(held, Mapping)):
            self._doubled(leaf, to, value, held)
            return
        if not there:
            put(self.document, to, copy.deepcopy(value))
        row = Row(leaf.key, leaf.value, to, value, how, why, self._certainty(to, certainty))
        if row.changes or how is not How.EXACT:
            self.rows.append(row)

    def _doubled(self, leaf: Leaf, to: str, value: Any, held: Any) -> None:
        """Settle two settings that become one: null switches off, otherwise the first is kept."""
        if value is None and isinstance(held, Mapping):
            put(self.document, to, None)
            self.rows = [_switched_off(row, to) for row in self.rows]
            self.rows.append(Row(leaf.key, leaf.value, to, None, How.EXACT, "it is switched off", "read"))
        elif value == held:
            self._drop(leaf, How.EXACT, f"{to} says it already", "read")
        else:
            self._drop(leaf, How.LOST, f"{to} is {_shown(held)} already, by another key", "read")

    def _is_off(self, key: str) -> bool:
        section, dot, _ = key.rpartition(".")
        there, held = get(self.document, section) if dot else (False, None)
        return section in self.off or (there and held is None)

    def _drop(self, leaf: Leaf, how: How, why: str, certainty: Certainty) -> None:
        if leaf.there:
            return
        self.rows.append(Row(leaf.key, leaf.value, "", UNSAID, how, why, certainty))

    def _stays_though_unknown(self, leaf: Leaf) -> bool:
        """Whether neither release takes a setting and no rename leads anywhere: it is not this program's to drop."""
        if takes(self.source, leaf, self.tags):
            return False
        return way(leaf, self.new_tags, self.target) is None and gone(leaf.key, self.target) is None

    def _kind_is_gone(self, section: str) -> bool:
        tag = f"{section}.{TAGS[section]}"
        if tag not in self.tags or not takes(self.source, Leaf(tag, self.tags[tag]), {}):
            return False
        return takes(self.target, Leaf(section, None), {}) and not takes(self.target, Leaf(tag, self.new_tags[tag]), {})

    def _lose_section(self, section: str) -> None:
        kind = self.tags[f"{section}.{TAGS[section]}"]
        has = ", ".join(kinds_of(self.target, section)) or "none"
        self.rows.append(
            Row(section, self.given[section], "", UNSAID, How.LOST, f"{self.target} has no kind {kind}; it has {has}")
        )

    def _certainty(self, key: str, certainty: Certainty) -> Certainty:
        row = row_of(self.target, key, self.new_tags)
        return less_certain(certainty, row.certainty if row else "near")


def _switched_off(row: Row, section: str) -> Row:
    if not row.to.startswith(f"{section}.") and row.to != section:
        return row
    return Row(row.key, row.before, "", UNSAID, How.APPROXIMATE, _INERT, row.certainty, row.line)


def _switched_off_by(given: Mapping[str, Any], source: str, target: str) -> set[str]:
    """Return the sections of the target that the source has off, by a key that says so or by its default."""
    found = set()
    for row in renames():
        switch = Leaf(row.old, True)
        if row.change != "switch" or not takes(source, switch, {}) or not takes(target, Leaf(row.new, None), {}):
            continue
        there, value = get(given, row.old)
        known = row_of(source, row.old, {})
        if (value if there else known is not None and known.default) is False:
            found.add(row.new)
    return found


def _new_word(key: str, value: Any, target: str) -> Any:
    word = word_instead(key, value, target)
    return value if word is None else word.new


def _in(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _is_default(value: Any, known: Any) -> bool:
    default = known.default
    if isinstance(value, list) and isinstance(default, tuple):
        return list(default) == value
    return bool(value == default) and (value is None or type(value) is type(default))


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
