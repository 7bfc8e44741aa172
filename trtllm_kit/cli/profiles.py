"""``trtkit profiles``: the deploy profiles that ship, as documents an operator copies and owns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.explain_key import explain_key
from trtllm_kit.cli.options import complete_profile
from trtllm_kit.cli.session import Session, table
from trtllm_kit.errors import OutputOccupied, ProfileError, ProfileNotFound, UsageError, storage_error
from trtllm_kit.files import replace_text

app = typer.Typer(
    help="Deploy profiles: list, show, copy, validate; what a key means; their JSON schema.", no_args_is_help=True
)
app.command("explain")(explain_key)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_profile)]


@app.command("list")
def list_profiles(context: typer.Context) -> None:
    """List the shipped profiles."""
    from trtllm_kit.spec.load import load_profile, shipped_profiles

    session: Session = context.obj
    profiles = [load_profile(name).profile for name in shipped_profiles()]
    rows = [(one.name, one.hardware, one.trtllm_version, one.summary) for one in profiles]
    keys = ("name", "hardware", "trtllm_version", "summary")
    document = {"profiles": [dict(zip(keys, row, strict=True)) for row in rows]}
    session.result(document, lambda: table(("profile", "hardware", "TensorRT-LLM", "what for"), rows))


@app.command("show")
def show(context: typer.Context, name: NameArgument) -> None:
    """Print a shipped profile with its comments (--json: as it is read, with its bases merged)."""
    from trtllm_kit.spec.load import load_profile, profile_file

    session: Session = context.obj
    loaded = load_profile(name)
    text = profile_file(name).read_text("utf-8")
    session.result(loaded.profile.model_dump(mode="json"), lambda: text.rstrip("\n"))


@app.command("copy")
def copy(
    context: typer.Context,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to put it.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Copy a shipped profile to FILE, to edit and own; it is named after the file."""
    from trtllm_kit.spec.load import profile_file

    session: Session = context.obj
    text = _named_after(file, profile_file(name).read_text("utf-8"))
    try:
        if force:
            replace_text(file, text)
        else:
            with file.open("x", encoding="utf-8") as target:
                target.write(text)
    except FileExistsError:
        raise OutputOccupied(
            f"{file} exists",
            why="copying would replace a file you may have edited",
            hint="add --force, or another name",
        ) from None
    except OSError as error:
        raise storage_error(error, "copying a profile") from error
    session.result({"copied": name, "to": str(file)}, lambda: f"{name} -> {file}")


def _named_after(file: Path, text: str) -> str:
    """Give a copied profile a name of its own, so that plans and manifests do not speak of the shipped one."""
    name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("._-")[:63]
    return re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE) if name else text


@app.command("validate")
def validate(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE|NAME", autocompletion=complete_profile)],
) -> int:
    """Check a profile; all problems at once, with line numbers. Exit 1 when it has any."""
    session: Session = context.obj
    try:
        loaded, _ = asked_for(file)
    except ProfileNotFound:
        raise
    except UsageError as error:
        problems = (list(error.problems) if isinstance(error, ProfileError) else []) or [error.why]
        text = "\n".join([error.what, *(f"  {problem}" for problem in problems)])
        session.result({"valid": False, "problems": problems}, lambda: text)
        return 1
    session.result({"valid": True, "name": loaded.profile.name}, lambda: f"{file}: valid ({loaded.profile.name})")
    return 0


@app.command("schema")
def schema(context: typer.Context) -> None:
    """Print the JSON schema of a profile, for editors."""
    import json

    from trtllm_kit.spec.load import profile_schema

    session: Session = context.obj
    document = profile_schema()
    session.result(document, lambda: json.dumps(document, indent=1))
