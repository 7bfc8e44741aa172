"""How a script finds what it serves: the repository beside its folder, and the checkpoint that the repository links."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.repository.places import ENGINE_LINK, LINK
from trtllm_kit.serve.targets.server import REPLICA
from trtllm_kit.serve.targets.shell import Comment, Line, Output, Part, Run, Script, Self, Set, Var
from trtllm_kit.serve.targets.subject import Subject

HERE, REPOSITORY = "TRTKIT_HERE", "TRTKIT_REPOSITORY"
CHECKPOINT, ENGINE = "TRTKIT_CHECKPOINT", "TRTKIT_ENGINE"
"""Variables of the scripts: their folder, the model repository, and what it links, each without links in its path."""


ALL = "all.sh"


def every_copy(script: str, copies: int) -> Script:
    """Return the script that starts every copy with another script of the folder, and ends when all have ended."""
    here = Output(("dirname", "--", Output(("readlink", "-f", "--", Self()))))
    runs = (Run(("env", f"{REPLICA}={copy}", "sh", (Var(HERE), f"/{script}")), beside=True) for copy in range(copies))
    intro = Comment(f"Starts {copies} copies, each with ports, GPUs or nodes of its own.")
    return Script((intro, Set(HERE, here), *runs, Run(("wait",))))


def beside_script(subject: Subject) -> Iterator[Line]:
    """Yield the lines that set the variables from the place of the script."""
    script = Output(("readlink", "-f", "--", Self()))
    yield from _found(subject, Output(("dirname", "--", script)))


def beside_folder(subject: Subject, folder: Part) -> Iterator[Line]:
    """Yield the lines that set the variables from a folder, for scripts that are copied before they run."""
    yield from _found(subject, Output(("readlink", "-f", "--", folder)))


def _found(subject: Subject, folder: Part) -> Iterator[Line]:
    yield Set(HERE, folder)
    yield Set(REPOSITORY, Output(("readlink", "-ve", "--", (Var(HERE), "/", subject.place))))
    for name, link in links(subject).items():
        yield Set(name, Output(("readlink", "-ve", "--", (Var(REPOSITORY), f"/{link}"))))


def own_places(subject: Subject) -> list[str]:
    """Return the paths that the profile gives in place of links; a container sees them where this machine does."""
    serve = subject.plan.serve
    given = [serve.checkpoint_path, serve.engine_path if subject.engines else None]
    return [path for path in given if path]


def place_problems(subject: Subject) -> Iterator[str]:
    """Yield the paths that no container's options can name: those signs part the paths of a mount."""
    for path in own_places(subject):
        if set(path) & set(',:"\n\r') or not path.startswith("/"):
            yield f'serve: {path!r} cannot be mounted into a container; allowed is an absolute path without , : and "'


def links(subject: Subject) -> dict[str, str]:
    """Return the links in the repository, whose ends a container must see too, by the variable that holds the end."""
    found = {CHECKPOINT: LINK} if subject.linked else {}
    return found | ({ENGINE: ENGINE_LINK} if subject.engine_linked else {})
