"""``trtkit check-health``: is the server well? One line, one exit code, for people, cron and Nagios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.options import complete_profile
from trtllm_kit.cli.session import Session

if TYPE_CHECKING:
    from trtllm_kit.health.rules import Ruleset
    from trtllm_kit.health.snapshot import Target
    from trtllm_kit.health.verdict import Verdict

_INTERVAL, _TIMEOUT = 1.0, 4.0


def check_health(
    context: typer.Context,
    *,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", metavar="NAME|FILE", help="Whose alerts to use.", autocompletion=complete_profile
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Metrics page, e.g. http://127.0.0.1:8002/metrics.")] = None,
    repository: Annotated[
        Path | None, typer.Option("--repository", metavar="FOLDER", help="What trtkit deploy made: address and grace.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Readings; by default as many as the rules need.")
    ] = None,
    interval: Annotated[float, typer.Option("--interval", min=0, help="Seconds between readings.")] = _INTERVAL,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that one reading may take.")] = _TIMEOUT,
) -> int:
    """Read the server's metrics and say OK (0), WARNING (1), CRITICAL (2) or UNKNOWN (3)."""
    from trtllm_kit.health.report import as_json, exit_code, nagios_output

    session: Session = context.obj
    verdict = verdict_of(profile, url=url, repository=repository, samples=samples, interval=interval, timeout=timeout)
    session.result(as_json(verdict), lambda: nagios_output(verdict, verbose=session.verbose))
    return exit_code(verdict)


def verdict_of(
    profile: str | None,
    *,
    url: str | None = None,
    repository: Path | None = None,
    samples: int | None = None,
    interval: float = _INTERVAL,
    timeout: float = _TIMEOUT,
) -> Verdict:
    """Check the server that a profile, a URL or a deployed repository names, by the profile's rules."""
    from trtllm_kit.health.check import check

    target, ruleset = _question(profile, url, repository)
    return check(target, ruleset, samples=samples, interval_seconds=interval, timeout_seconds=timeout)


def _question(profile: str | None, url: str | None, repository: Path | None) -> tuple[Target, Ruleset]:
    """Say where to look and by which rules; a repository alone still knows its hardware, from its plan."""
    from trtllm_kit.health.load import rules_for
    from trtllm_kit.health.target import target_for

    if profile is not None:
        loaded, hardware = asked_for(profile)
        return target_for(repository, url, loaded.profile), rules_for(loaded.profile, hardware)
    target = target_for(repository, url, None)
    if repository is None:
        return target, rules_for()
    from trtllm_kit.checkpoint.plan_file import read_stored_plan
    from trtllm_kit.spec.load import load_hardware

    plan = read_stored_plan(repository)
    return target, rules_for(hardware=load_hardware(plan.hardware), runtime=plan.runtime.runtime.value)
