"""Off the engine backend: from what was found to a profile, its files and the account of every setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trtllm_kit.migrate.engine.account import Account
from trtllm_kit.migrate.engine.chosen import assumed, choose
from trtllm_kit.migrate.engine.clients import client_rows, metric_rows
from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.engine.outcome import planned_files, unplanned_files
from trtllm_kit.migrate.engine.profile import Asked, Profiled, make_profile, profile_text, tuples_of
from trtllm_kit.migrate.engine.report import markdown
from trtllm_kit.migrate.engine.rules import Rules
from trtllm_kit.migrate.found import Found
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import DeployProfile

PROFILE = "profile.yaml"
RULES = "prometheus-rules.yaml"
REPORT, REPORT_JSON = "report.md", "report.json"


@dataclass(frozen=True)
class Model:
    """The model that is served, as its Hugging Face folder says it."""

    name: str
    """What the operator calls it."""
    spec: ModelSpec
    positions: int | None
    """Tokens it was trained for; None where its config.json does not say."""
    is_folder: bool = True
    """Whether ``name`` is a Hugging Face folder or hub id; else words for where it was read of."""


@dataclass(frozen=True)
class Migrated:
    """The account of a migration, and the text of every file by relative path."""

    account: Account
    files: dict[str, str]


def migrate(
    found: Found, asked: Asked, machine: Hardware, model: Model | None = None, rules: Rules | None = None
) -> Migrated:
    """Return the whole migration of what was found; nothing is written.

    Raises ``ValueError`` when ``asked`` is refused by profiles, and ``RepositoryError`` when the release has no
    llmapi model for Triton.
    """
    rows = choose(rows_of(found, asked.release, machine.gpu.compute_capability))
    made = make_profile(rows, assumed(found, rows, None if model is None else model.positions), asked)
    profile = DeployProfile.model_validate(tuples_of(made.document), strict=True)
    plan = None if model is None else _plan(profile, made, machine, model)
    files = unplanned_files(profile, asked.release) if plan is None else planned_files(plan)
    files = {PROFILE: profile_text(made, asked), **files}
    if rules is not None:
        files[RULES] = rules.text
    account = Account(
        asked=asked,
        found=found,
        rows=made.rows,
        assumed=made.assumed,
        profile=made.document,
        clients=client_rows(asked.release),
        metrics=metric_rows(),
        rules=() if rules is None else rules.told,
        model=model.name if model is not None and model.is_folder else "",
        planned_for="" if model is None else model.name,
        findings=() if plan is None else plan.findings,
    )
    account = replace(account, files=(*files, REPORT, REPORT_JSON))
    report = {
        REPORT: markdown(account),
        REPORT_JSON: json.dumps(account.document(), indent=1, ensure_ascii=False) + "\n",
    }
    return Migrated(account, files | report)


def _plan(profile: DeployProfile, made: Profiled, machine: Hardware, model: Model) -> Plan:
    origins = dict.fromkeys(_keys(made.document, ""), PROFILE)
    return make_plan(model.spec, LoadedProfile(profile, origins), machine)


def _keys(document: Mapping[str, Any], prefix: str) -> list[str]:
    """Return every dotted key that a document sets, sections before what stands in them."""
    found = []
    for name, value in document.items():
        found.append(f"{prefix}{name}")
        if isinstance(value, dict):
            found += _keys(value, f"{prefix}{name}.")
    return found
