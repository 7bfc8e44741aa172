"""``trtkit migrate compare``: the same prompts to two deployments, and whether the new one may take over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trtllm_kit.cli.bench_options import CaOption, HeaderOption, OutOption, TimeoutOption
from trtllm_kit.cli.compare_options import (
    AllowDifferentOption,
    AllowOption,
    ApiNewOption,
    ApiOldOption,
    BearerNewOption,
    BearerOldOption,
    LongestOption,
    MaxTokensOption,
    ModelNewOption,
    ModelOldOption,
    NewArgument,
    OldArgument,
    PromptsOption,
    SlowerOption,
    TokenizerNewOption,
    TokenizerOption,
    UsersOption,
    WholeOption,
)
from trtllm_kit.cli.load_options import SeedOption
from trtllm_kit.cli.session import Session, heading, table

if TYPE_CHECKING:
    from trtllm_kit.bench.compare import Row as Figure
    from trtllm_kit.migrate.comparison.compare import Row, Verdict

_SHOWN = 5
"""Differences that are shown as text; ``--json`` and ``--out`` hold all."""


def compare(
    context: typer.Context,
    old_url: OldArgument,
    new_url: NewArgument,
    *,
    prompts: PromptsOption = "50",
    max_tokens: MaxTokensOption = 64,
    isl: LongestOption = 64,
    concurrency: UsersOption = 1,
    api_old: ApiOldOption = None,
    api_new: ApiNewOption = None,
    model_old: ModelOldOption = None,
    model_new: ModelNewOption = None,
    tokenizer: TokenizerOption = None,
    tokenizer_new: TokenizerNewOption = None,
    header: HeaderOption = None,
    bearer_old: BearerOldOption = None,
    bearer_new: BearerNewOption = None,
    ca: CaOption = None,
    timeout: TimeoutOption = "60s",
    whole: WholeOption = False,
    allow: AllowOption = None,
    allow_different: AllowDifferentOption = 0,
    slower_by: SlowerOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
) -> int:
    """Ask two deployments the same, greedily, and say go or no-go. Exit 1: no-go, 3: nothing to compare."""
    from trtllm_kit.cli.evaluate import require_place
    from trtllm_kit.cli.migrate_asked import Given, asked_both, rules_of
    from trtllm_kit.migrate.comparison.answers import side_of
    from trtllm_kit.migrate.comparison.compare import document_of, verdict_of

    session: Session = context.obj
    if out is not None:
        require_place(out)
    rules = rules_of(allow or (), allow_different, slower_by)
    question, old, new = asked_both(
        Given(old_url, api_old, model_old, bearer_old, tokenizer),
        Given(new_url, api_new, model_new, bearer_new, tokenizer_new or tokenizer),
        prompts=prompts, tokens=max_tokens, longest=isl, users=concurrency, header=header, ca=ca, timeout=timeout,
        whole=whole, seed=seed, told=session.log,
    )  # fmt: skip
    sides = [side_of(asked, question, session.log) for asked in (old, new)]
    ids = None if new.tokenizer is None else new.tokenizer.ids
    verdict = verdict_of(question.prompts, sides[0], sides[1], rules, ids)
    document = document_of(verdict)
    if out is not None:
        _write(out, document)
    session.result(document, lambda: _text(verdict))
    return 0 if verdict.go else 1


def _write(path: Path, document: dict[str, Any]) -> None:
    import json

    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import replace_text

    try:
        replace_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise storage_error(error, "writing the comparison") from None


def _text(verdict: Verdict) -> str:
    from trtllm_kit.migrate.comparison.compare import Outcome

    rows = [(str(count), name) for name, count in verdict.counts().items() if count or name in ("asked", "same")]
    sides = [(side.name, side.place, side.api, side.model) for side in verdict.sides]
    speed = [_figure(row) for row in verdict.speed.rows]
    blocks = [table(("side", "at", "interface", "model"), sides), heading("Answers"), table(("prompts", ""), rows)]
    for outcome in (Outcome.DIFFERENT, Outcome.NEAR, Outcome.NEW_FAILED, Outcome.OLD_FAILED, Outcome.BOTH_FAILED):
        shown = verdict.first(outcome, _SHOWN)
        blocks += [heading(f"{str(outcome).capitalize()}: the first {len(shown)}")] if shown else []
        blocks += [_difference(row) for row in shown]
    blocks += [heading("Speed"), table(("figure", "old", "new", "change", "limit", ""), speed)]
    blocks += [f"note: {note}" for note in (*verdict.notes, *verdict.speed.doubts)]
    blocks += [f"because: {reason}" for reason in verdict.reasons]
    return "\n".join([*blocks, heading("GO" if verdict.go else "NO-GO")])


def _figure(row: Figure) -> tuple[str, ...]:
    from trtllm_kit.bench.report import precise

    limit = "" if row.limit is None else f"{row.limit:.1%}"
    shown = (precise(value) if row.less_is_better else f"{value:,.1f}" for value in (row.a, row.b))
    return row.name, *shown, f"{row.change:+.1%}", limit, "WORSE" if row.broken else ""


def _difference(row: Row) -> str:
    """Return a prompt's answers from where they differ; what a file or a server said is shown as one line."""
    from trtllm_kit.printable import printable

    found, lines = row.difference, [f"prompt {row.number}: {_cut(row.prompt)}"]
    if found is None or found.character is None:
        return "\n".join([*map(printable, lines), *_ends(row)])
    ways = f", {' and '.join(found.near)}" if found.near else ""
    token = "" if found.token is None else f", token {found.token}"
    lines.append(f"  at character {found.character}{token}{ways}")
    for name, goes_on in (("old", found.old), ("new", found.new)):
        lines.append(f"  {name}: {found.before!r} then {goes_on!r}" + ("" if goes_on else " (it ends there)"))
    return "\n".join(map(printable, lines))


def _ends(row: Row) -> list[str]:
    from trtllm_kit.printable import printable

    pairs = (("old", row.old), ("new", row.new))
    return [
        printable(f"  {name}: {said.failure}: {said.why}" if said.failure else f"  {name}: {_cut(said.text)!r}")
        for name, said in pairs
    ]


def _cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
