"""``trtkit check-health``: is the server well? One line, one exit code, for people, cron and Nagios."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.check_options import INSTALL, INTERVAL_SECONDS, OPTIONS, TIMEOUT_SECONDS, CheckOption
from trtllm_kit.cli.options import complete_profile
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError
from trtllm_kit.files import is_handed_over

if TYPE_CHECKING:
    from trtllm_kit.health.compiled import Question
    from trtllm_kit.health.rules import Ruleset
    from trtllm_kit.health.snapshot import Target
    from trtllm_kit.health.verdict import Verdict


_WHERE = ("profile", "url", "repository", "targets", "discover")
"""Options of which one at least names a server."""


def check_health(context: typer.Context, action: str | None = None, **given: Any) -> int:
    """Read the server's metrics and say OK (0), WARNING (1), CRITICAL (2) or UNKNOWN (3)."""
    from trtllm_kit.cli.check_run import answer
    from trtllm_kit.health.compiled import keep_question
    from trtllm_kit.health.install import KINDS
    from trtllm_kit.health.state_file import state_folder, tidy

    session: Session = context.obj
    kinds = [kind for kind in KINDS if given.pop(kind.replace("-", "_"))]
    if action is not None or kinds:
        return _install(session, action, kinds, given)
    asked = {**given, "json": session.json, "verbose": session.verbose}
    asked |= {option.name: tuple(given[option.name] or ()) for option in OPTIONS if option.many}
    questions, made_from = questions_of(asked)
    result = answer(asked, questions)
    folder = asked["state"] or state_folder(os.environ)
    if not asked["once"] and not asked["discover"] and not is_handed_over(asked["profile"] or ""):
        keep_question(asked, folder, questions, made_from)
    if not asked["once"]:
        tidy(folder)
    session.result(result.document(), result.text)
    return result.exit_code


def parameter_of(option: CheckOption) -> inspect.Parameter:
    """Return an option as the command line wants it."""
    kind: Any = list[option.kind] if option.many else option.kind  # type: ignore[name-defined]
    kind = kind if option.default is not None else kind | None
    extra: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
    extra |= {"min": option.least} if option.least is not None else {}
    extra |= {"autocompletion": complete_profile} if option.name == "profile" else {}
    annotation = Annotated[kind, typer.Option(*option.flags, help=option.help, **extra)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)


def _install(session: Session, action: str | None, kinds: list[str], given: Mapping[str, Any]) -> int:
    """Print the line or unit that makes this machine check by itself."""
    if action != "install" or len(kinds) != 1:
        raise UsageError(
            f"check-health {action or ''} {' '.join('--' + kind for kind in kinds)}".strip(),
            why="install takes one of --cron, --systemd-timer and --nagios, which take install",
            hint="trtkit check-health install --cron --profile NAME",
        )
    if not any(given[name] for name in _WHERE):
        raise UsageError(
            f"check-health install --{kinds[0]}",
            why=f"nothing says which server to check: none of {', '.join('--' + name for name in _WHERE)} was given",
            hint=f"trtkit check-health install --{kinds[0]} --profile NAME",
        )
    from trtllm_kit.health.install import install_text

    ours = {"install", f"--{kinds[0]}", "--json", "--verbose", "-v", "--debug", "check-health"}
    words = whole_paths([word for word in sys.argv[1:] if word not in ours])
    program = str(Path(shutil.which(sys.argv[0]) or sys.argv[0]).absolute())
    text = install_text(kinds[0], program, words)
    session.result({"kind": kinds[0], "text": text}, lambda: text)
    return 0


def whole_paths(words: Sequence[str]) -> list[str]:
    """Give files and folders their whole paths: what cron starts is somewhere else. ``words`` are options and values.

    What may also be a name (of a profile, of pods) is a path where such a file or folder is there.
    """
    kinds = {flag: option.metavar for option in OPTIONS for flag in option.flags}
    whole, flag = list[str](), ""
    for word in words:
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            whole.append(f"{flag}={_whole(kinds.get(flag, ''), value)}" if equals else word)
        else:
            whole.append(_whole(kinds.get(flag, ""), word))
    return whole


def _whole(kind: str, value: str) -> str:
    path = Path(value)
    is_path = (
        kind in ("FILE", "FOLDER") or (kind == "NAME|FILE" and path.is_file()) or (kind == "WHERE" and path.exists())
    )
    return str(path.absolute()) if is_path else value


_PARAMETERS = [parameter_of(option) for option in (*OPTIONS, *INSTALL)]
_ACTION = Annotated[str | None, typer.Argument(metavar="[install]", help="Print what makes this machine check itself.")]
check_health.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # one definition of the options
    [
        inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        inspect.Parameter("action", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_ACTION),
        *_PARAMETERS,
    ],
    return_annotation=int,
)
check_health.__annotations__ = {"context": typer.Context, "action": _ACTION, "return": int} | {
    parameter.name: parameter.annotation for parameter in _PARAMETERS
}


def verdict_of(
    profile: str | None,
    *,
    url: str | None = None,
    repository: Path | None = None,
    samples: int | None = None,
    interval: float = INTERVAL_SECONDS,
    timeout: float = TIMEOUT_SECONDS,
) -> Verdict:
    """Check the server that a profile, a URL or a deployed repository names, by the profile's rules, without memory."""
    from trtllm_kit.health.check import check

    target, ruleset = _question(profile, url, repository)
    return check(target, ruleset, samples=samples, interval_seconds=interval, timeout_seconds=timeout)


def questions_of(asked: Mapping[str, Any]) -> tuple[list[Question], list[str]]:
    """Say where to look and by which rules, and which files that comes from."""
    from trtllm_kit.health.discover import discover
    from trtllm_kit.health.target import target_for
    from trtllm_kit.health.targets import read_targets, with_options

    repository = Path(asked["repository"]) if asked["repository"] else None
    urls = asked["url"] or (None,)
    target, ruleset = None, None
    found = discover(asked["discover"]) if asked["discover"] else []
    if not (asked["targets"] or found) or repository is not None or asked["url"]:
        target, ruleset = _question(asked["profile"], urls[0], repository)
    targets = [target] if target is not None else []
    targets += [target_for(None, url, None) for url in urls[1:]]
    targets += [*found, *(read_targets(Path(asked["targets"])) if asked["targets"] else [])]
    ruleset = ruleset or _rules(asked["profile"])
    return [(with_options(one, asked), ruleset) for one in targets], _made_from(asked, repository)


def _rules(profile: str | None) -> Ruleset:
    from trtllm_kit.health.load import rules_for

    if profile is None:
        return rules_for()
    loaded, hardware = asked_for(profile)
    return rules_for(loaded.profile, hardware)


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


def _made_from(asked: Mapping[str, Any], repository: Path | None) -> list[str]:
    """List the files that an answer depends on; some need not be there."""
    from trtllm_kit.artifact import MANIFEST
    from trtllm_kit.checkpoint.plan_file import PLAN_FILE
    from trtllm_kit.health.load import RULES
    from trtllm_kit.spec.inherit import files_with_bases
    from trtllm_kit.spec.load import CATALOGUE, profile_file, shipped_files

    files = [RULES, CATALOGUE]
    if asked["profile"] is not None:
        files += files_with_bases(profile_file(asked["profile"]), shipped_files())
    if asked["targets"] is not None:
        files.append(Path(asked["targets"]))
    if repository is not None:
        folder = repository.resolve()
        files += [folder / MANIFEST, folder / PLAN_FILE, folder.with_name(folder.name + ".run.json")]
        files.append(folder.with_name(folder.name + ".server.log"))
    return [str(file.resolve()) for file in files]
