"""Environment variables of the old server, for the new one's process (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.found import Setting
from trtllm_kit.spec.system_text import MACHINES_OWN, looks_secret
from trtllm_kit.upstream.engine_settings import meaning
from trtllm_kit.upstream.environment import FAMILIES, ranges_of, variable

_SECRET = "secretKeyRef"  # noqa: S105  # the name of a field


def variable_row(setting: Setting, to: str) -> Row:
    """Return the row of a variable: it stays one of the server's process unless it spoke of engines, or is a secret."""
    name = setting.name
    of_engines = meaning("environment", name, setting.value)
    if of_engines is not None:
        return Row(setting, of_engines.means, of_engines.how, note=of_engines.note)
    row = Row(setting, _does(name, to), "exact", key=f"environment.{name}", value=_text(setting.value))
    if isinstance(setting.value, dict) and isinstance(setting.value.get(_SECRET), dict):
        named = setting.value[_SECRET]
        return replace(row, key=f"deploy.secret_environment.{name}", value=f"{named.get('name')}/{named.get('key')}")
    if setting.value is None or looks_secret(name, str(setting.value)):
        return replace(
            row,
            how="approximate",
            value=None,
            lost="its value, which is handed on from outside or a secret",
            instead=f"set it in the shell that starts the server, or deploy.secret_environment: {{{name}: SECRET/KEY}}",
        )
    return _for_release(row, name, to)


def _for_release(row: Row, name: str, to: str) -> Row:
    """Return the row as far as the release reads the variable."""
    if name in MACHINES_OWN:
        own = f"the variable in the profile: {MACHINES_OWN[name]}"
        return replace(row, how="none", value=None, lost=own, instead="set it in the shell that starts the server")
    if variable(name, to) is not None or not name.startswith(FAMILIES):
        return row
    if ranges_of(name):
        return replace(
            row, how="none", value=None, lost=f"the variable: release {to} does not read it", instead="leave it out"
        )
    return replace(
        row,
        how="approximate",
        lost="nobody knows whether the release reads it",
        instead="leave it out where it was for engines",
    )


def _does(name: str, to: str) -> str:
    known = variable(name, to) or next(iter(ranges_of(name)), None)
    return known.does.rstrip(".") if known is not None else "a variable of the server's process"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
