"""Which setting wins where the command line of ``trtllm-serve`` and its YAML document both speak."""

from __future__ import annotations

from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows


class Precedence(Fact):
    """The order in one range of releases."""

    name: Literal["serve_settings"]
    order: tuple[str, ...]
    """Weakest first."""
    merge: str
    """How sections that both have are brought together."""
    by_key: tuple[str, ...] = ()
    """Sections that are brought together key by key, ``*`` for all; any other of the document replaces it."""

    @property
    def yaml_wins(self) -> bool:
        """Whether the YAML document overwrites what the command line says."""
        return self.order.index("YAML") > self.order.index("command line")


class _Sets(Fact):
    option: str
    key: str


def key_of_option(option: str) -> str | None:
    """Return the dotted key that an option of ``trtllm-serve``, by its first name, sets; None where it sets none."""
    return next((row.key for row in rows("precedence", "options", _Sets) if row.option == option), None)


def precedence(version: str) -> Precedence | None:
    """Return the order in that release; None before ``trtllm-serve`` reads a YAML document."""
    found = (row for row in rows("precedence", "orders", Precedence) if row.holds(version))
    return next((row.seen_from(version) for row in found), None)
