"""One row of a migration's report: what a setting meant and what it becomes (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trtllm_kit.migrate.found import HIDDEN, Setting, Where
from trtllm_kit.plan.llm_options import SECTION
from trtllm_kit.spec.system_text import looks_secret
from trtllm_kit.upstream.engine_settings import How


@dataclass(frozen=True)
class Row:
    """What became of one setting: there is exactly one row for each."""

    setting: Setting
    means: str
    how: How
    key: str = ""
    """Dotted key of the deploy profile that takes it over."""
    llm: str = ""
    """Dotted key of the LLM API; beside ``key`` the one that the profile's key is written as, else an option of it."""
    value: Any = None
    """What the key becomes; None where nothing is written."""
    lost: str = ""
    """What is lost where the way is approximate or there is none."""
    instead: str = ""
    """What to do about it."""
    note: str = ""
    """Why it is dropped, or what else there is to know."""
    overruled_by: Where | None = None
    """Where another setting says otherwise, which holds."""
    secret: bool = False
    """Whether its value is a secret whatever its name."""

    @property
    def shown(self) -> object:
        """The setting's value as a report may show it: a secret stays in the file where it was found."""
        name, value = self.setting.name, self.setting.value
        open_to_all = value is None or isinstance(value, dict) or str(value).startswith("$")
        return HIDDEN if not open_to_all and (self.secret or looks_secret(name, str(value))) else value

    @property
    def writes(self) -> bool:
        """Whether its value is written into the profile."""
        return self.value is not None and self.overruled_by is None and bool(self.key or self.llm)

    @property
    def place(self) -> str:
        """Dotted key of the deploy profile that has its value; ``llm_api.options.KEY`` where no other stands for it."""
        return self.key or (f"{SECTION}.{self.llm}" if self.llm else "")

    def document(self) -> dict[str, Any]:
        """Return the row as plain data."""
        setting = self.setting
        return {
            "where": str(setting.where),
            "reader": setting.reader.value,
            "model": setting.model,
            "name": setting.name,
            "value": self.shown,
            "means": self.means,
            "how": self.how,
            "key": self.place if self.value is not None else self.key,
            "llm_api_key": self.llm,
            "becomes": self.value,
            "lost": self.lost,
            "instead": self.instead,
            "note": self.note,
            "overruled_by": None if self.overruled_by is None else str(self.overruled_by),
        }
