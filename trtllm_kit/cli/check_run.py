"""What both ways of ``check-health`` do once they know where to look and by which rules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trtllm_kit.health.check import Pace
from trtllm_kit.health.compiled import Question
from trtllm_kit.health.fleet import check_all
from trtllm_kit.health.report import as_json, nagios_output
from trtllm_kit.health.state_file import keep_untold, state_folder, state_path
from trtllm_kit.health.verdict import worst

if TYPE_CHECKING:
    from trtllm_kit.health.rules import Ruleset
    from trtllm_kit.health.snapshot import Target
    from trtllm_kit.health.verdict import Verdict


class Result:
    """The verdicts of one call, and how they are shown."""

    def __init__(
        self, verdicts: Sequence[Verdict], *, verbose: bool = False, rulesets: Sequence[Ruleset] | None = None
    ) -> None:
        self.verdicts = verdicts
        self.verbose = verbose
        self.rulesets = rulesets
        self.state = worst(verdict.state for verdict in verdicts)
        self.exit_code = self.state.exit_code

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON values; of several targets, the gravest state and each verdict."""
        if len(self.verdicts) == 1:
            return as_json(self.verdicts[0])
        return {
            "state": self.state.value,
            "exit_code": self.exit_code,
            "targets": [as_json(verdict) for verdict in self.verdicts],
        }

    def as_json(self, *, ascii_only: bool) -> str:
        """Return the document as text."""
        return json.dumps(self.document(), indent=1, ensure_ascii=ascii_only)

    def text(self) -> str:
        """Return a Nagios plugin's output; of several targets, one line for all and the output of each not OK."""
        if self.rulesets is not None:
            from trtllm_kit.health.explain import explained

            return "\n\n".join(map(explained, self.verdicts, self.rulesets))
        if len(self.verdicts) == 1:
            return nagios_output(self.verdicts[0], verbose=self.verbose)
        from trtllm_kit.health.report import fleet_output

        return fleet_output(self.verdicts, verbose=self.verbose)


def answer(asked: Mapping[str, Any], questions: Sequence[Question]) -> Result:
    """Check, remember, and tell whoever wants to be told; who is not reached is named on stderr.

    Raises ``UsageError`` for numbers that make no check, before anything is done.
    """
    folder = None if asked["once"] else asked["state"] or state_folder(os.environ)
    checked = check_all(questions, Pace(asked["samples"], asked["interval"], asked["timeout"]), folder)
    rulesets = [ruleset for _, ruleset in questions] if asked["explain"] else None
    result = Result([verdict for verdict, _ in checked], verbose=asked["verbose"], rulesets=rulesets)
    if asked["prom"] is not None:
        _write_textfile(asked["prom"], result.verdicts)
    changed = [
        (question[0], verdict) for question, (verdict, differs) in zip(questions, checked, strict=True) if differs
    ]
    if changed and (asked["exec"] or asked["webhook"]):
        _tell(asked, changed, folder)
    return result


def _write_textfile(path: str, verdicts: Sequence[Verdict]) -> None:
    from trtllm_kit.errors import StorageError
    from trtllm_kit.health.textfile import write_textfile

    try:
        write_textfile(path, verdicts)
    except StorageError as error:
        _warn(error.what, error.why, error.hint)


def _tell(asked: Mapping[str, Any], changed: Sequence[tuple[Target, Verdict]], folder: str | None) -> None:
    """Tell of the verdicts that changed; who was not reached is tried again at the next check."""
    from trtllm_kit.health.sources.hook import tell

    document = Result([verdict for _, verdict in changed]).document()
    failures = tell(asked["exec"], asked["webhook"], document, asked["timeout"])
    for failure in failures:
        _warn(*failure)
    if failures and folder is not None:
        for target, _ in changed:
            keep_untold(state_path(folder, target))


def _warn(what: str, why: str, hint: str) -> None:
    """Say on stderr what went wrong in telling others: the verdict stands."""
    from trtllm_kit.cli.streams import to_stderr
    from trtllm_kit.printable import printable

    to_stderr(f"warning: {printable(what)}\n  because: {printable(why)}\n  try: {printable(hint)}")
