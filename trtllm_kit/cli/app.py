"""The command tree and the one place where results become exit codes.

| code | every verb but check-health | check-health |
|---|---|---|
| 0 | done | OK |
| 1 | it ran, and the answer is no | WARNING |
| 2 | usage error | CRITICAL |
| 3 | it could not do it | UNKNOWN, also for usage errors and crashes |

An interrupt (Ctrl-C) gives 130 and SIGTERM 143, as shells do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from trtllm_kit import __version__
from trtllm_kit.cli import (
    bench,
    build,
    check_health,
    convert,
    deploy,
    doctor,
    engines,
    estimate,
    evaluate,
    lint,
    migrate,
    plan,
    profiles,
    quickstart,
    stop,
    tune,
    upgrade_check,
    upstream,
    watch,
)
from trtllm_kit.cli.session import GLOBAL_FLAGS, Session, error_document, hoist_global_flags
from trtllm_kit.cli.streams import paint, say
from trtllm_kit.errors import InternalError, KitError, StorageError, UsageError, storage_error

WATCHDOG_VERB = "check-health"
UNKNOWN = 3
_COMPLETION = "_TRTKIT_COMPLETE"
INTERRUPTED = 128 + signal.SIGINT
_HELP_FLAGS = ["-h", "--help"]


class Terminated(KeyboardInterrupt):
    """SIGTERM, or SIGHUP of a closed terminal: unwinds like Ctrl-C, so that servers are stopped and locks released."""


app = typer.Typer(
    name="trtkit",
    help="From a Hugging Face checkpoint and a deploy profile to a checked, running TensorRT-LLM server.",
    epilog="--json, --verbose and --debug may also stand after the verb. Exit codes: 0 done, 1 the answer is no, "
    "2 usage, 3 it could not do it; check-health: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": _HELP_FLAGS},
)
_SHARED = "Also, here or before the verb: --json, --verbose (-v), --debug."
app.add_typer(engines.app, name="engines", epilog=_SHARED)
app.add_typer(profiles.app, name="profiles", epilog=_SHARED)
app.add_typer(upstream.app, name="upstream", epilog=_SHARED)
app.add_typer(tune.app, name="tune", epilog=_SHARED)
app.add_typer(bench.app, name="bench", epilog=_SHARED)
app.add_typer(doctor.app, name="doctor", epilog=_SHARED)
app.add_typer(migrate.app, name="migrate", epilog=_SHARED)
for _name, _verb in (
    ("plan", plan.plan),
    ("lint", lint.lint),
    ("upgrade-check", upgrade_check.upgrade_check),
    ("convert", convert.convert),
    ("evaluate", evaluate.evaluate),
    ("build", build.build),
    ("estimate", estimate.estimate),
    ("deploy", deploy.deploy),
    ("stop", stop.stop),
    (WATCHDOG_VERB, check_health.check_health),
    ("watch", watch.watch),
    ("quickstart", quickstart.quickstart),
):
    app.command(_name, epilog=_SHARED)(_verb)


def _print_version(context: typer.Context, asked: bool) -> None:
    if asked:
        session: Session = context.obj
        session.result({"version": __version__}, lambda: f"trtkit {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show reasons and every step.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[  # noqa: ARG001  # handled by its callback
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Hold what every verb shares."""
    context.obj = Session(json=json, verbose=verbose, debug=debug, outlet=context.obj.outlet)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with the code of the table above."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    arguments = hoist_global_flags(sys.argv[1:] if argv is None else argv)
    code = run(arguments)
    gc.freeze()  # the end of the process frees everything at once; searching all of it for cycles first is in vain
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    session = Session(json="--json" in arguments, verbose=False, debug="--debug" in arguments)
    code = _run(session, arguments)
    session.outlet.end(code)
    return code


def _run(session: Session, arguments: list[str]) -> int:
    verb = next((word for word in arguments if word not in GLOBAL_FLAGS), "")
    try:
        return _invoke(session, arguments)
    except (Exception, KeyboardInterrupt) as error:  # the one boundary that may see anything
        failure = _as_kit_error(error)
        if session.debug and isinstance(error, Exception):
            traceback.print_exception(error)
        code = _code_of(error, failure)
        return _unknown(session, failure, error) if verb == WATCHDOG_VERB else _report(session, failure, code, verb)


def _invoke(session: Session, arguments: list[str]) -> int:
    """Parse and run; everything but a plain end is an exception (typer's own main would swallow some)."""
    command = command_tree()
    if _COMPLETION in os.environ:
        command.main(arguments, prog_name="trtkit")
    try:
        with command.make_context("trtkit", arguments, obj=session) as context:
            outcome = command.invoke(context)
    except typer.Exit as end:
        outcome = end.exit_code
    except SystemExit:  # rich's word for a reader of the help that went away
        outcome = 0
    return outcome if isinstance(outcome, int) else 0


def command_tree() -> Any:
    """Return the commands, with no type shown beside an option that takes no value."""
    root_command: Any = typer.main.get_command(app)
    pending = [root_command]
    while pending:
        command = pending.pop()
        pending.extend(getattr(command, "commands", {}).values())
        helps = command.get_help_option(typer.Context(command, help_option_names=_HELP_FLAGS))
        for parameter in (*command.params, helps):
            if getattr(parameter, "is_bool_flag", False):
                parameter.metavar = ""
    return root_command


_INTERRUPTED, _AGAIN = "interrupted", "; run the same command again to go on"
_GO_ON = frozenset({"convert", "build", "deploy", "quickstart"})
"""Verbs that find what an interrupted run of theirs left; all others begin anew."""


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated(number)


def _as_kit_error(error: BaseException) -> KitError | None:
    """Give any failure the three-line form; None for an interrupt and for a bare call that only wants help."""
    if isinstance(error, KitError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return None
    if isinstance(error, typer.TyperException):
        return _usage_error(error)
    if isinstance(error, OSError):
        return storage_error(error, "running the command")
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InternalError(what, why="this is a fault in trtkit", hint="run again with --debug and report the trace")


def _usage_error(error: typer.TyperException) -> UsageError | None:
    if type(error).__name__ == "NoArgsIsHelpError":
        return None  # typer has shown the help
    message = str(error.format_message() if hasattr(error, "format_message") else error).rstrip(".")
    context = getattr(error, "ctx", None)
    verb = context.command_path if context is not None else "trtkit"
    why = _USAGE.get(type(error).__name__, "the value is not one that it takes")
    return UsageError(message, why=f"{verb}: {why}", hint=f"{verb} --help")


_USAGE = {
    "MissingParameter": "it cannot run without it",
    "NoSuchOption": "it has no such option",
    "UsageError": "it does not take that",
}
"""Why a command line was refused, by the name of typer's error."""


def _code_of(error: BaseException, failure: KitError | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 128 + int(error.args[0]) if isinstance(error, Terminated) else INTERRUPTED
    return failure.exit_code if failure is not None else UsageError.exit_code


def _report(session: Session, failure: KitError | None, code: int, verb: str) -> int:
    if failure is not None:
        session.fail(failure)
    elif code > INTERRUPTED - signal.SIGINT:
        session.outlet.complain(_INTERRUPTED + (_AGAIN if verb in _GO_ON else ""))
    return code


def _unknown(session: Session, failure: KitError | None, error: BaseException) -> int:
    """End the watchdog's verb: whatever went wrong, one status line on stdout and UNKNOWN."""
    text = failure.what if failure is not None else f"the check was ended by {type(error).__name__}"
    if session.json:
        line = json.dumps({"state": "UNKNOWN"} | (error_document(failure) if failure else {"error": text}), indent=1)
    else:
        line = f"TRTKIT UNKNOWN: {' '.join(text.split()).replace('|', '/')}"
    with contextlib.suppress(StorageError):  # stdout may be what failed
        say(line)
    if failure is not None:
        session.outlet.complain(str(failure), paint(str(failure), "31", sys.stderr))
    return UNKNOWN
