"""Who sets a key of the LLM API that a document and an option of ``trtllm-serve`` both name (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.release.keys import get
from trtllm_kit.migrate.release.moves import LIMITS
from trtllm_kit.upstream.llm_api import limits_section, llm_api_key
from trtllm_kit.upstream.precedence import Precedence, precedence


@dataclass(frozen=True)
class Holds:
    """What holds of a key, and who says it."""

    value: Any
    by: str


@dataclass(frozen=True)
class Said:
    """What a document and an option say of one key."""

    document: Mapping[str, Any]
    key: str
    option: Any

    def holds(self, order: Precedence, version: str) -> Holds:
        """Return what holds in a release; a value of None is the release's own default."""
        there, value = get(self.document, self.key)
        section, dot, name = self.key.rpartition(".")
        if not order.yaml_wins or (name in LIMITS and not dot and limits_section(version)):
            return Holds(self.option, "the command line")
        if there:
            return Holds(value, "the document")
        replaced = dot and section in self.document and not {section, "*"} & set(order.by_key)
        if replaced:
            known = llm_api_key(version, self.key)
            return Holds(
                known.default if known else None, f"the document's {section}, which replaces the whole section"
            )
        return Holds(self.option, "the command line")


def other_winner(said: Said, source: str, target: str) -> tuple[Holds, Holds] | None:
    """Return what holds in each release where that is not the same; None where it is, or the order was not read."""
    was, now = precedence(source), precedence(target)
    if was is None or now is None:
        return None
    before, after = said.holds(was, source), said.holds(now, target)
    return None if before.value == after.value else (before, after)
