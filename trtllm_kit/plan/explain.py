"""What one key of a deploy profile is: meaning, values, cost, what becomes of it in each release, who sets it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from trtllm_kit.errors import UsageError
from trtllm_kit.plan.checks import RULES
from trtllm_kit.plan.llm_keys import GRAPH_KEYS, LLM_API_KEYS, SETTINGS
from trtllm_kit.plan.llm_options import SECTION as LLM_OPTIONS
from trtllm_kit.plan.llm_options import data_of, is_an_option, own_words
from trtllm_kit.plan.plan import profile_key
from trtllm_kit.plan.settle_build import PLACES
from trtllm_kit.plan.speculation_keys import FIELDS
from trtllm_kit.spec.inherit import BASE
from trtllm_kit.spec.load import LoadedProfile, profile_schema
from trtllm_kit.spec.schema_words import SchemaWords
from trtllm_kit.upstream.environment import ranges_of, variable, variables
from trtllm_kit.upstream.fit import in_words
from trtllm_kit.upstream.llm_api import LlmApiKey, limits_section, llm_api_key, llm_api_keys, releases_read
from trtllm_kit.upstream.llm_api_inside import InsideKey, inside_key, inside_keys, kinds_of
from trtllm_kit.upstream.memory import uncounted
from trtllm_kit.upstream.releases import known_releases
from trtllm_kit.upstream.speculation import KINDS, SECTION, decoding_type, speculation_field
from trtllm_kit.upstream.trtllm_build import build_flag, build_flags, every_build_flag

ENVIRONMENT = "environment"
OPTIONS = "build.options"


class Becomes(BaseModel):
    """What a key is in the LLM API of one release."""

    model_config = ConfigDict(frozen=True)

    release: str
    key: str | None
    """Dotted; None when the release has none."""
    default: Any = None
    allowed: tuple[str | int, ...] = ()


class Explanation(BaseModel):
    """Everything trtkit knows of one profile key."""

    model_config = ConfigDict(frozen=True)

    key: str
    description: str
    values: str
    """What it may be, in words."""
    default: Any = None
    required: bool = False
    cost: str
    """What raising it, or switching it on, costs; empty when its description names no cost."""
    becomes: tuple[Becomes, ...] = ()
    """In releases read exactly, oldest first; empty when it is no LLM-API setting."""
    set_by: dict[str, Any] = {}
    """Shipped profiles that set it, and to what."""
    checks: dict[str, str] = {}
    """Rules that look at it: id and title."""


def explain(key: str, profiles: Iterable[LoadedProfile]) -> Explanation:
    """Explain a dotted key, ``environment.NAME``, ``build.options.NAME`` or ``llm_api.options.NAME``.

    Raises ``UsageError`` with a near spelling for an unknown one.
    """
    loaded = tuple(profiles)
    section, _, name = key.partition(".")
    if section == ENVIRONMENT and name:
        return _variable(name, loaded)
    if key.startswith(f"{OPTIONS}."):
        return _option(key, loaded)
    if key.startswith(f"{LLM_OPTIONS}."):
        return _llm_option(key, loaded)
    schema = profile_schema()
    node = _node(schema, key)
    if node is None:
        raise _unknown(key)
    words, description = SchemaWords(schema), str(node.get("description", ""))
    return Explanation(
        key=key,
        description=description or f"A section; its keys: {', '.join(words.keys(tuple(key.split('.'))))}.",
        values=words.allowed(tuple(key.split("."))),
        default=node.get("default"),
        required="default" not in node and key != BASE,
        cost=cost_of(description),
        becomes=tuple(_becomes(key)),
        set_by=_set_by(key, loaded),
        checks=_checks(key),
    )


def keys() -> tuple[str, ...]:
    """Return every dotted key of a profile, sections too, each known variable, option of the builder, LLM-API key."""
    schema = profile_schema()
    named = (f"{ENVIRONMENT}.{name}" for name in dict.fromkeys(row.name for row in variables()))
    options = (f"{OPTIONS}.{name.removeprefix('--')}" for name in every_build_flag() if name not in PLACES)
    arguments = (f"{LLM_OPTIONS}.{name}" for name in _llm_names())
    return (*_keys(schema, schema, ""), *named, *options, *arguments)


def cost_of(description: str) -> str:
    """Return the sentences of a description that name a cost."""
    sentences = re.split(r"(?<=\.)\s+", description)
    return " ".join(sentence for sentence in sentences if re.search(r"\bcosts?\b", sentence))


def _variable(name: str, loaded: tuple[LoadedProfile, ...]) -> Explanation:
    ranges = ranges_of(name)
    if not ranges:
        raise _unknown(f"{ENVIRONMENT}.{name}")
    found = ((release, variable(name, release)) for release in releases_read())
    return Explanation(
        key=f"{ENVIRONMENT}.{name}",
        description=ranges[-1].does,
        values=ranges[-1].values,
        default=ranges[-1].default,
        cost="",
        becomes=tuple(
            Becomes(release=release, key=name if row else None, default=row.default if row else None)
            for release, row in found
        ),
        set_by={one.profile.name: one.profile.environment[name] for one in loaded if name in one.profile.environment},
        checks=_checks(ENVIRONMENT),
    )


def _option(key: str, loaded: tuple[LoadedProfile, ...]) -> Explanation:
    """Explain an option of ``trtllm-build``: what each release that builds engines takes, and its own default."""
    name = f"--{key.removeprefix(f'{OPTIONS}.')}"
    found = [(version, build_flag(version, name)) for version in known_releases() if build_flags(version)]
    known = [flag for _, flag in found if flag is not None]
    if not known or name in PLACES:
        raise _unknown(key)
    cost = "It costs a failed build where the model, the GPU or the release do not suit it."
    return Explanation(
        key=key,
        description=f"Option {known[-1].flag} of trtllm-build, in place of what trtkit chooses: trtkit plan --verbose "
        f"shows what that is, and why. {cost}",
        values=known[-1].values,
        default=None,
        cost=cost,
        becomes=tuple(
            Becomes(
                release=version,
                key=flag.flag if flag else None,
                default=flag.default if flag else None,
                allowed=flag.choices if flag else (),
            )
            for version, flag in found
        ),
        set_by={
            one.profile.name: one.profile.build.options[name.removeprefix("--")]
            for one in loaded
            if name.removeprefix("--") in one.profile.build.options
        },
        checks=_checks(OPTIONS),
    )


def _llm_names() -> tuple[str, ...]:
    """Return the keys of the LLM API that ``llm_api.options`` may set in some release."""
    names = (*(row.key for row in llm_api_keys()), *(row.key for row in inside_keys() if row.backend == "pytorch"))
    newest = releases_read()[-1]
    return tuple(name for name in dict.fromkeys(names) if is_an_option(newest, name))


def _llm_option(key: str, loaded: tuple[LoadedProfile, ...]) -> Explanation:
    """Explain an argument of the LLM API that no other key of a profile stands for."""
    name = key.removeprefix(f"{LLM_OPTIONS}.")
    own = own_words(releases_read()[-1]).get(name)
    if own is not None:
        why = f"{own} stands for {name} of the LLM API"
        raise UsageError(f"no profile key {key}", why=why, hint=f"trtkit profiles explain {own}")
    if name not in _llm_names():
        raise _unknown(key)
    found = [(version, _argument(version, name)) for version in releases_read()]
    known = [row for _, row in found if row is not None]
    takes = uncounted(name, "any") if known else None
    cost = f"It costs memory that the plan does not count: {takes.takes}." if takes else ""
    return Explanation(
        key=key,
        description=f"Argument {name} of the LLM API, written as it stands. {cost}".rstrip(),
        values=_taken(known[-1]) if known else "what the release takes",
        default=known[-1].default if known else None,
        cost=cost,
        becomes=tuple(
            Becomes(release=version, key=name, default=row.default, allowed=tuple(map(str, row.allowed)))
            if row
            else Becomes(release=version, key=None)
            for version, row in found
        ),
        set_by={
            one.profile.name: data_of(one.profile.llm_api.options[name])
            for one in loaded
            if name in one.profile.llm_api.options
        },
        checks=_checks(LLM_OPTIONS),
    )


def _argument(version: str, name: str) -> LlmApiKey | InsideKey | None:
    """Return what a release says of a key, of whichever kind its section may be."""
    kinds = (None, *kinds_of(version, name.partition(".")[0]))
    inside = (inside_key(version, name, kind) for kind in kinds)
    return llm_api_key(version, name) or next((row for row in inside if row is not None), None)


def _taken(row: LlmApiKey | InsideKey) -> str:
    return f"one of {', '.join(map(str, row.allowed))}" if row.allowed else in_words(row.type)


def _becomes(key: str) -> Iterator[Becomes]:
    """Yield what a key becomes in each release that was read exactly; nothing for keys that are not the LLM API's."""
    for release in releases_read():
        names = _upstream_names(key, release)
        if names:
            yield _in_release(names, release)


def _in_release(names: tuple[str, ...], release: str) -> Becomes:
    for name in names:
        section, _, field = name.rpartition(".")
        if section == SECTION:
            if field == "decoding_type":
                return Becomes(release=release, key=name, allowed=_literals(release))
            if any(speculation_field(kind, field, release) for kind in KINDS):
                return Becomes(release=release, key=name)
        elif entry := llm_api_key(release, name):
            return Becomes(release=release, key=name, default=entry.default, allowed=entry.allowed)
    return Becomes(release=release, key=None)


def _literals(release: str) -> tuple[str, ...]:
    words = (decoding_type(kind, release) for kind in KINDS)
    return tuple(word.literal for word in words if word is not None)


def _upstream_names(key: str, release: str) -> tuple[str, ...]:
    """Return the dotted LLM-API names a profile key has in one release or another, the newest first."""
    section, _, name = key.partition(".")
    if section == "speculation" and name:
        return tuple(f"{SECTION}.{field}" for field in FIELDS[name])
    if section == "limits" and name:
        prefix = limits_section(release)
        return (f"{prefix}.{name}" if prefix else name,)
    tables = {profile_key(decision): target for decision, target in LLM_API_KEYS.items()}
    tables |= {profile_key(setting.decision): setting.key for setting in SETTINGS} | GRAPH_KEYS
    return (tables[key],) if key in tables else ()


def _set_by(key: str, loaded: tuple[LoadedProfile, ...]) -> dict[str, Any]:
    return {one.profile.name: _value(one.profile.model_dump(mode="json"), key) for one in loaded if key in one.origins}


def _value(document: Mapping[str, Any], key: str) -> Any:
    value: Any = document
    for name in key.split("."):
        value = value[name]
    return value


def _checks(key: str) -> dict[str, str]:
    """Return the rules that look at a key, at its section, or, for a section, at a key of it."""
    return {rule.id: rule.title for rule in RULES if any(_touches(key, one) for one in rule.keys)}


def _touches(key: str, looked_at: str) -> bool:
    return key == looked_at or key.startswith(f"{looked_at}.") or looked_at.startswith(f"{key}.")


def _node(schema: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return the schema of a key with the description and default that stand beside a reference."""
    node: Mapping[str, Any] = schema
    for name in key.split("."):
        found = _target(schema, node).get("properties", {}).get(name)
        if found is None:
            return None
        node = found
    return node


def _keys(schema: Mapping[str, Any], node: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, child in _target(schema, node).get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _keys(schema, child, f"{prefix}{name}.")


def _target(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, also where the value may be absent."""
    options = [node, *node.get("anyOf", ()), *node.get("allOf", ())]
    reference = next((one["$ref"] for one in options if "$ref" in one), None)
    target: Mapping[str, Any] = schema["$defs"][reference.rsplit("/", 1)[1]] if reference else node
    return target


def _unknown(key: str) -> UsageError:
    known = keys()
    spelled = {one.lower(): one for one in known}
    homes = [one for lower, one in spelled.items() if key.lower() in (lower, lower.rpartition(".")[2])]
    near = homes or [spelled[one] for one in difflib.get_close_matches(key.lower(), spelled, n=3)]
    return UsageError(
        f"no profile key {key}",
        why="a profile has no such key" + (f"; near it are {', '.join(near)}" if near else ""),
        hint=f"trtkit profiles explain {near[0]}" if near else "trtkit profiles schema, which lists every key",
    )
