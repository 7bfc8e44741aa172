"""Settings made by hand, as the readers of files find them."""

from __future__ import annotations

from typing import Any

from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.found import Found, Reader, Setting, Where

WHERE = Where("build.sh", 7)


def setting(reader: Reader, name: str, value: object, model: str = "", where: Where = WHERE) -> Setting:
    """Make one setting."""
    return Setting(reader, name, value, where, model)


def found_of(*settings: tuple[Any, ...], release: str = "") -> Found:
    """Make what was found of tuples of reader, name, value and model, one a line from the first line on."""
    return Found(
        tuple(setting(*one, where=Where("build.sh", line)) for line, one in enumerate(settings, 1)), release=release
    )


def only_row(*settings: tuple[Any, ...], to: str = "1.2.1") -> Row:
    """Return the row of the first setting, read together with the others."""
    return rows_of(found_of(*settings), to)[0]
