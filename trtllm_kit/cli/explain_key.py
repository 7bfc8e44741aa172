"""``trtkit profiles explain``: one key of a profile, in full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.session import Session, table

if TYPE_CHECKING:
    from trtllm_kit.plan.explain import Explanation


def complete_key(incomplete: str) -> list[str]:
    """Complete a dotted profile key."""
    from trtllm_kit.plan.explain import keys

    return [key for key in keys() if key.startswith(incomplete)]


KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="Dotted key, a section, environment.NAME, build.options.NAME, or llm_api.options.NAME.",
        autocompletion=complete_key,
    ),
]


def explain_key(context: typer.Context, key: KeyArgument) -> None:
    """Say what KEY does, takes and costs, what it becomes in each release, who sets it, which checks look at it."""
    from trtllm_kit.plan.explain import explain
    from trtllm_kit.spec.load import load_profile, shipped_profiles

    session: Session = context.obj
    found = explain(key, map(load_profile, shipped_profiles()))
    session.result(found.model_dump(mode="json"), lambda: explanation_text(found))


def explanation_text(found: Explanation) -> str:
    """Lay an explanation out for reading."""
    facts = [("takes", found.values), ("default", "none: it must be set" if found.required else _spelt(found.default))]
    if found.cost:
        facts.append(("cost", found.cost))
    parts = [found.description, table((found.key, "in words"), facts)]
    if found.becomes:
        rows = [
            (
                one.release,
                one.key or "nothing",
                _spelt(one.default) if one.key else "",
                ", ".join(map(str, one.allowed)),
            )
            for one in found.becomes
        ]
        parts.append(table(("release", "becomes", "its default", "values"), rows))
    if found.set_by:
        parts.append(
            table(("shipped profile", "sets it to"), [(name, _spelt(value)) for name, value in found.set_by.items()])
        )
    if found.checks:
        parts.append(table(("check", "about"), list(found.checks.items())))
    return "\n\n".join(parts)


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
