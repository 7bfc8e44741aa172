"""``trtkit migrate engine``: off the removed engine backend, every setting accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.options import DryRunOption
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError
from trtllm_kit.units import counted

if TYPE_CHECKING:
    from trtllm_kit.migrate.engine.profile import Asked
    from trtllm_kit.migrate.engine.rules import Rules
    from trtllm_kit.migrate.engine.whole import Migrated, Model
    from trtllm_kit.migrate.found import Found
    from trtllm_kit.serve.target_folder import Change
    from trtllm_kit.spec.hardware import Hardware

_REPOSITORY = "repository/"
PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="Engine folder, TensorRT-LLM checkpoint, script or Dockerfile that builds or starts one, Triton "
        "repository, Helm values, Kubernetes manifest, or a folder of these.",
    ),
]
ToOption = Annotated[str, typer.Option("--to", metavar="RELEASE", help="TensorRT-LLM release that will serve.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FOLDER",
        help="Hugging Face folder of the model, or a hub id; its config.json is enough.",
    ),
]
HardwareOption = Annotated[
    str | None,
    typer.Option(
        "--hardware", metavar="NAME|FILE", help="Machine that will serve; else the one GPU that the files name."
    ),
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Prometheus rules to rewrite for the new server.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FOLDER", help="Folder to write; without it nothing is written.", show_default=False
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over files that a person changed in FOLDER.")]


def engine(
    context: typer.Context,
    path: PathArgument,
    *,
    to: ToOption = "1.2",
    model: ModelOption = None,
    hardware: HardwareOption = None,
    rules: RulesOption = None,
    out: OutOption = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
) -> int:
    """Turn what builds, holds or serves an engine into a profile for the PyTorch backend. Exit 1: something is lost."""
    from trtllm_kit.migrate.reading.path import found

    session: Session = context.obj
    release, read = _release(to), found(path)
    rewritten = None if rules is None else _rules(rules)
    asked, machine = _asked(path, release, read, hardware, out)
    made = _migrated(read, asked, machine, _model(session, model, path, read), rewritten)
    changes = _changes(made, out, dry_run=dry_run, force=force)
    return _tell(session, made, changes, out if not dry_run else None)


def _release(to: str) -> str:
    """Return the release to serve; raises ``UsageError`` for one that has no way without engines."""
    from trtllm_kit.upstream.releases import release

    known = release(to)
    if "llm-api" not in known.toolchains or not known.triton_llmapi_model:
        raise UsageError(
            f"--to {to}",
            why=f"release {known.version} serves engines; without them it is 1.0 or later",
            hint="--to 1.2",
        )
    return known.version


def _asked(path: Path, release: str, read: Found, hardware: str | None, out: Path | None) -> tuple[Asked, Hardware]:
    """Return what is asked for, with its machine; raises ``UsageError`` where no machine is named."""
    from trtllm_kit.migrate.engine.machine import Chosen, choose_machine, gpus_of
    from trtllm_kit.migrate.engine.profile import Asked, profile_name
    from trtllm_kit.spec.load import hardware_names, load_hardware

    if hardware is not None:
        chosen = Chosen(hardware, "named with --hardware")
    else:
        chosen = choose_machine(read, gpus_of(read, release), {name: load_hardware(name) for name in hardware_names()})
    name = profile_name(path.resolve().stem if path.is_file() else path.resolve().name)
    asked = Asked(release, chosen.name, chosen.why, name, path.resolve().name, str(out or ""))
    return asked, load_hardware(chosen.name)


def _migrated(read: Found, asked: Asked, machine: Hardware, model: Model | None, rules: Rules | None) -> Migrated:
    from trtllm_kit.migrate.engine.whole import migrate

    try:
        return migrate(read, asked, machine, model, rules)
    except ValueError as error:
        raise UsageError(
            f"no profile can be written for {asked.source}", why=str(error), hint="--hardware NAME with a known machine"
        ) from None


def _model(session: Session, named: str | None, path: Path, read: Found) -> Model | None:
    """Return the model that was named, the one folder that the files name and that is here, or what they describe."""
    from trtllm_kit.cli.plan import model_folder
    from trtllm_kit.migrate.engine.described import described_model
    from trtllm_kit.migrate.engine.machine import model_folders
    from trtllm_kit.migrate.engine.whole import Model
    from trtllm_kit.spec.load import load_model

    if named is None:
        root = path if path.is_dir() else path.parent
        here = [one for one in model_folders(read) if (root / one / "config.json").is_file()]
        if len(here) != 1:
            return described_model(read)
        session.log(f"the files name the model {here[0]}, which is here: it is planned for")
        named = str(root / here[0])
    folder = model_folder(session, named)
    spec = load_model(folder)
    return Model(named, spec, _positions(folder))


def _positions(folder: Path) -> int | None:
    from trtllm_kit.spec.load import parse_config, read_config

    config = parse_config(read_config(folder), folder / "config.json")
    inner = config.get("text_config")
    found = (inner if isinstance(inner, dict) else config).get("max_position_embeddings")
    return found if isinstance(found, int) and found > 0 else None


def _rules(path: Path) -> Rules:
    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import UnfitFile, read_text
    from trtllm_kit.migrate.engine.rules import rewrite_rules

    try:
        text = read_text(path)
    except (OSError, UnfitFile) as error:
        raise storage_error(error, "reading Prometheus rules") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text", why=str(error), hint="name a YAML file of Prometheus rules") from None
    return rewrite_rules(text, str(path))


def _changes(made: Migrated, out: Path | None, *, dry_run: bool, force: bool) -> tuple[Change, ...]:
    """Write the files, or say what writing them would mean; raises ``EditedFiles`` without ``force``."""
    from trtllm_kit.serve.target_folder import compare, write

    if out is None:
        return ()
    if dry_run:
        return compare(out, made.files)
    facts = {"target": "migration", "release": made.account.asked.release, "profile": made.account.asked.name}
    return write(out, made.files, facts, force=force).changes


def _states(changes: Sequence[Change]) -> Iterator[str]:
    """Yield a line for each file, those of the repository in one line a state."""
    counts: dict[str, int] = {}
    for one in changes:
        if one.path.startswith(_REPOSITORY):
            counts[one.state] = counts.get(one.state, 0) + 1
        else:
            yield f"  {one.state:8}{one.path}"
    yield from (f"  {state:8}{_REPOSITORY} ({counted(count, 'file')})" for state, count in counts.items())


def _tell(session: Session, made: Migrated, changes: tuple[Change, ...], written: Path | None) -> int:
    from trtllm_kit.migrate.engine.report import text

    account = made.account
    document = account.document() | {
        "written": None if written is None else str(written),
        "changes": [{"path": one.path, "state": one.state, "diff": list(one.diff)} for one in changes],
    }

    def told() -> str:
        where = f"Written to {written}" if written is not None else "Nothing was written (--out FOLDER writes it)"
        return "\n".join((text(account, verbose=session.verbose), "", *_states(changes), where))

    session.result(document, told)
    return 0 if account.is_whole else 1
