"""``trtkit quickstart``: the whole road once, on a small real model, printing each command it stands for."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.convert import run_convert
from trtllm_kit.cli.deploy import show_deployment, start_server, write_repository
from trtllm_kit.cli.options import LockWaitOption, ProfileOption
from trtllm_kit.cli.session import Result, Session, heading, made
from trtllm_kit.cli.streams import paint, say
from trtllm_kit.staging import LOCK_SECONDS

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan

PROFILE = "cpu-rehearsal-smollm2"
PROMPT = "The capital of France is"
_COLOURS = {"OK": "32", "WARNING": "33"}


@dataclass(frozen=True)
class Collecting(Session):
    """Prints each result as text, or keeps it for the one JSON object at the end."""

    steps: list[dict[str, Any]] = field(default_factory=list)

    def result(self, document: Result, text: Callable[[], str]) -> None:
        """Keep the document, or print the text."""
        if self.json:
            self.steps[-1]["result"] = made(document)
        else:
            super().result(document, text)

    def step(self, command: str) -> None:
        """Say which command comes next."""
        if self.json:
            self.steps.append({"command": command})
        else:
            say(f"\n{heading('$ ' + command)}")


def quickstart(
    context: typer.Context,
    *,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Your own folder or hub id instead of SmolLM2-135M.")
    ] = None,
    profile: ProfileOption = PROFILE,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything that is made.")] = Path(
        "trtkit-quickstart"
    ),
    prompt: Annotated[str, typer.Option("--prompt", help="What the model is asked to go on from.")] = PROMPT,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Longest answer, tokens.")] = 24,
    lock_wait: LockWaitOption = LOCK_SECONDS,
) -> int:
    """Plan, convert, build, deploy, ask and check a small real model with a real Triton server, then shut it down."""
    parent: Session = context.obj
    session = Collecting(json=parent.json, verbose=parent.verbose, debug=parent.debug, outlet=parent.outlet)
    made = make_everything(session, model or fetch(session), profile, out, lock_seconds=lock_wait)
    answer, line, code = serve_once(session, made, profile, out / "model_repository", (prompt, tokens))
    if session.json:
        parent.result({"steps": session.steps, "answer": answer, "verdict": line}, str)
    return code


def fetch(session: Collecting) -> str:
    """Get the small model into the cache."""
    from trtllm_kit.quickstart.small_model import NAME, small_model

    folder = small_model(session.progress())
    session.log(f"model: {NAME}, in {_for_shells(folder)}")
    return str(folder)


def _for_shells(path: Path) -> str:
    """Write a path as one would type it: below the home folder with ~."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home() raises where there is none
    return f"~/{path.relative_to(home)}" if path.is_absolute() and path.is_relative_to(home) else str(path)


def make_everything(session: Collecting, model: str, profile: str, out: Path, *, lock_seconds: float) -> Plan:
    """Plan, convert, build and deploy into ``out``; everything already there and unchanged is kept."""
    from trtllm_kit.cli.build import run_build
    from trtllm_kit.cli.plan import run_plan
    from trtllm_kit.cli.replan import replan

    checkpoint, engine, repository = out / "checkpoint", out / "engine", out / "model_repository"
    named = _for_shells(Path(model))
    session.step(f"trtkit plan {named} --profile {profile}")
    if run_plan(session, model, profile):
        raise typer.Exit(1)  # the plan has said why, and what would fit
    session.step(f"trtkit convert {named} --profile {profile} --out {checkpoint}")
    run_convert(session, model, profile, checkpoint, lock_seconds=lock_seconds)
    session.step(f"trtkit build {checkpoint} --profile {profile} --out {engine}")
    run_build(session, checkpoint, profile, engine, lock_seconds=lock_seconds)
    session.step(f"trtkit deploy {engine} --profile {profile} --out {repository} --start")
    made = replan(engine, profile)
    deployment = write_repository(session, engine, made, repository, lock_seconds=lock_seconds)
    show_deployment(session, repository, deployment)
    return made


def serve_once(
    session: Collecting, made: Plan, profile: str, repository: Path, question: tuple[str, int]
) -> tuple[str, str, int]:
    """Start the server, ask one question, check its health, stop it; returns answer, verdict line and exit code."""
    from trtllm_kit.cli.check_health import verdict_of
    from trtllm_kit.health.report import as_json, exit_code, nagios_line

    with start_server(session, made, repository) as server:
        session.log(f"ready: {server.urls.http}")
        answer = ask(session, server.urls.http, *question)
        session.step(f"trtkit check-health --profile {profile} --repository {repository}")
        verdict = verdict_of(profile, repository=repository)
        line = nagios_line(verdict)
        session.result(as_json(verdict), lambda: line)
    if not session.json:
        colour = _COLOURS.get(verdict.state.name, "31")
        say(f"\n{question[0]}{answer}\n{paint(verdict.state.name, colour)}")
    return answer, line, exit_code(verdict)


def ask(session: Collecting, url: str, prompt: str, tokens: int) -> str:
    """Stream one greedy answer, showing every piece as it comes."""
    from trtllm_kit.serve.client import Sampling, stream

    body = json.dumps({"text_input": prompt, "streaming": True, "sampling_param_max_tokens": tokens})
    session.step(f"curl -N {url}/v2/models/tensorrt_llm/generate_stream -d {shlex.quote(body)}")
    pieces = []
    for piece in stream(url, "tensorrt_llm", prompt, Sampling(max_tokens=tokens)):
        pieces.append(piece.text)
        if not session.json:
            say(piece.text, end="")
    if session.json:
        session.steps[-1]["result"] = {"text": "".join(pieces)}
    else:
        say("")
    return "".join(pieces)
