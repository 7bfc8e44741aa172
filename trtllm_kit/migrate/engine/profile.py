"""From rows to a deploy profile: a document that ``spec.load`` reads, each key with the place it came from (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from pydantic import ValidationError

from trtllm_kit.migrate.engine.chosen import Assumed, written
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.plan.llm_options import SECTION
from trtllm_kit.printable import printable
from trtllm_kit.spec.profile import DeployProfile

_LONGEST_NAME = 63
_LONGEST_COMMENT = 110
_SECTIONS = (
    "quantization", "calibration", "parallelism", "limits", "kv_cache", "scheduler", "engine", "llm_api", "speculation",
    "load", "serve", "deploy", "environment",
)  # fmt: skip
_TOP = ("schema_version", "name", "summary", "hardware", "trtllm_version", "toolchain")


@dataclass(frozen=True)
class Asked:
    """What the operator says of the new deployment."""

    release: str
    hardware: str
    why_hardware: str
    name: str
    source: str
    """What was migrated, as the operator called it."""
    out: str = ""
    """Folder that is written, as the operator called it; empty for none."""


@dataclass(frozen=True)
class Profiled:
    """A profile, and the rows as they are once its own checks have spoken."""

    rows: tuple[Row, ...]
    assumed: tuple[Assumed, ...]
    document: dict[str, Any]
    comments: Mapping[str, str]
    """By dotted key, where its value came from."""


def make_profile(rows: Sequence[Row], assumed: Sequence[Assumed], asked: Asked) -> Profiled:
    """Return the profile of the rows; a value that profiles refuse leaves it, and its row says so.

    Raises ``ValueError`` when a profile without any of the rows is refused, which says that ``asked`` is no good.
    """
    left, kept = tuple(rows), tuple(assumed)
    for _ in range(len(left) + len(kept) + 1):
        made = _made(left, kept, asked)
        refused = _refused(made.document)
        if not refused:
            return made
        changed = tuple(_without(row, refused) for row in left)
        fewer = tuple(one for one in kept if _reason(one.key, refused) is None)
        if changed == left and fewer == kept:
            break
        left, kept = changed, fewer
    raise ValueError("; ".join(f"{key}: {text}" for key, text in refused.items()))


def _made(rows: tuple[Row, ...], kept: tuple[Assumed, ...], asked: Asked) -> Profiled:
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": asked.name,
        "summary": f"Migrated from {asked.source}",
        "hardware": asked.hardware,
        "trtllm_version": asked.release,
        "toolchain": "llm-api",
    }
    comments = {"hardware": asked.why_hardware, "toolchain": "the PyTorch backend: no engine is built"}
    for key, row in written(rows).items():
        _put(document, key, row.value)
        comments[key] = _came_from(row)
    for one in kept:
        _put(document, one.key, one.value)
        comments[one.key] = one.why
    return Profiled(rows, kept, document, comments)


def _came_from(row: Row) -> str:
    setting = row.setting
    about = f"{setting.where}: {setting.name} {setting.value}"
    return about if row.how == "exact" else f"{about}; {row.lost}"


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key of a profile; the name of an option of the LLM API is one word with its dots."""
    option = key.removeprefix(f"{SECTION}.")
    *path, last = key.split(".") if option == key else (*SECTION.split("."), option)
    for name in path:
        document = document.setdefault(name, {})
    document[last] = value


def _refused(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what profiles refuse of a document, by dotted key."""
    try:
        DeployProfile.model_validate(tuples_of(document), strict=True)
    except ValidationError as error:
        return {".".join(_path(one["loc"])): one["msg"] for one in error.errors()}
    return {}


def _path(place: tuple[int | str, ...]) -> list[str]:
    """Return the keys of a place, without the positions in lists and the names of types that follow them."""
    return [str(part) for part in place if isinstance(part, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", part)]


def tuples_of(value: Any) -> Any:
    """Return a document as profiles are read: lists are tuples."""
    if isinstance(value, dict):
        return {name: tuples_of(one) for name, one in value.items()}
    return tuple(map(tuples_of, value)) if isinstance(value, list) else value


def _reason(key: str, refused: Mapping[str, str]) -> str | None:
    """Return why a key is refused; one that is refused with its whole section goes with it."""
    found = (
        text
        for place, text in refused.items()
        if place == key or place.startswith(f"{key}.") or key.startswith(f"{place}.")
    )
    return next(found, None)


def _without(row: Row, refused: Mapping[str, str]) -> Row:
    text = _reason(row.place, refused) if row.place and row.value is not None else None
    if text is None:
        return row
    return replace(
        row, how="none", value=None, lost=f"{row.place}: {row.value}, which profiles refuse: {text}",
        instead=f"set {row.place} by hand: docs/reference/profile-keys.md says what it takes",
    )  # fmt: skip


def profile_name(text: str) -> str:
    """Return a name that profiles may have, made of what was migrated: lower case, digits, dot, dash, underscore."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:_LONGEST_NAME].rstrip("-._")
    return name if re.match(r"[a-z0-9]", name) else "migrated"


def profile_text(made: Profiled, asked: Asked) -> str:
    """Return the profile as YAML, each key with a comment that says where its value came from."""
    head = [
        f"Migrated from {asked.source} by trtkit migrate engine; report.md beside it accounts for every setting.",
        "Check it:  trtkit plan MODEL --profile profile.yaml",
    ]
    lines = [f"# {printable(line)}" for line in head] + [""]
    lines += [_line(key, made.document[key], made.comments.get(key, ""), 0) for key in _TOP if key in made.document]
    for section in _SECTIONS:
        if section in made.document:
            lines += ["", f"{section}:", *_inside(section, made.document[section], made.comments, 1)]
    return "\n".join(lines) + "\n"


def _inside(prefix: str, section: Mapping[str, Any], comments: Mapping[str, str], depth: int) -> list[str]:
    lines = []
    for name, value in section.items():
        key = f"{prefix}.{name}"
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{name}:", *_inside(key, value, comments, depth + 1)]
        else:
            lines.append(_line(name, value, comments.get(key, ""), depth))
    return lines


def _line(name: str, value: Any, comment: str, depth: int) -> str:
    text = yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()[1:-1]
    told = printable(comment).replace("\n", " ")
    if len(told) > _LONGEST_COMMENT:
        told = told[: _LONGEST_COMMENT - 3] + "..."
    return f"{'  ' * depth}{name}: {text}" + (f"  # {told}" if told else "")
