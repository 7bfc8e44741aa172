"""The account of a migration: every setting with what became of it, and all that goes with it (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import Any

from trtllm_kit.findings import Finding, errors
from trtllm_kit.migrate.engine.chosen import Assumed
from trtllm_kit.migrate.engine.clients import ClientRow, MetricRow
from trtllm_kit.migrate.engine.profile import Asked
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.engine.rules import RuleTold
from trtllm_kit.migrate.found import Found

_WITHOUT_MODEL = (
    "name the model to have it planned and a repository written: --model FOLDER (its config.json is enough)",
    "where the source of the checkpoint is gone: trtkit migrate checkpoint TRTLLM_DIR OUT brings it back",
)
_DESCRIBED = (
    "name the model's own folder where you have it: --model FOLDER; windows of attention stand there alone",
    _WITHOUT_MODEL[1],
)
HOWS = ("exact", "approximate", "dropped", "none")


@dataclass(frozen=True)
class Account:
    """What a migration came to."""

    asked: Asked
    found: Found
    rows: tuple[Row, ...]
    assumed: tuple[Assumed, ...]
    profile: dict[str, Any]
    clients: tuple[ClientRow, ...]
    metrics: tuple[MetricRow, ...]
    rules: tuple[RuleTold, ...] = ()
    model: str = ""
    """Hugging Face folder or hub id of the model; empty where none was named."""
    planned_for: str = ""
    """The model that was planned for, as it is called; empty where nothing was planned."""
    findings: tuple[Finding, ...] = ()
    """Of the plan."""
    files: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many settings became what; their sum is the number of settings."""
        counted: Counter[str] = Counter(row.how for row in self.rows)
        return {how: counted[how] for how in HOWS}

    @property
    def is_whole(self) -> bool:
        """Whether everything was read and has an equivalent, and the plan refuses nothing."""
        lost = any(row.how == "none" for row in self.rows) or any(rule.fate == "none" for rule in self.rules)
        return not (lost or self.found.unread or errors(self.findings))

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to run next from where the migration was run, in order."""
        model = quote(self.model) if self.model else "MODEL"
        profile = quote(f"{self.asked.out}/profile.yaml" if self.asked.out else "profile.yaml")
        steps = () if self.model else _DESCRIBED if self.planned_for else _WITHOUT_MODEL
        return (
            *steps,
            f"trtkit plan {model} --profile {profile}",
            f"trtkit convert {model} --profile {profile} --out checkpoint",
            f"trtkit build checkpoint --profile {profile} --out engine",
            f"trtkit deploy engine --profile {profile} --out repository-to-serve",
            "trtkit migrate compare OLD_URL NEW_URL",
        )

    def document(self) -> dict[str, Any]:
        """Return the account as plain data: ``report.json``."""
        return {
            "source": self.asked.source,
            "release_from": self.found.release,
            "release_named_at": None if self.found.release_from is None else str(self.found.release_from),
            "release_to": self.asked.release,
            "hardware": {"name": self.asked.hardware, "why": self.asked.why_hardware},
            "model": self.model,
            "planned_for": self.planned_for,
            "verdict": "yes" if self.is_whole else "no",
            "settings": len(self.found.settings),
            "counts": self.counts,
            "rows": [row.document() for row in self.rows],
            "assumed": [{"key": one.key, "value": one.value, "why": one.why} for one in self.assumed],
            "unread": [{"where": str(one.where), "text": one.text, "why": one.why} for one in self.found.unread],
            "profile": self.profile,
            "findings": [finding.model_dump() for finding in self.findings],
            "clients": [row.document() for row in self.clients],
            "metrics": [row.document() for row in self.metrics],
            "rules": [rule.document() for rule in self.rules],
            "files": list(self.files),
            "next": list(self.next_steps),
        }
