"""Arguments and options that several verbs share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def complete_profile(incomplete: str) -> list[str]:
    """Complete the name of a shipped deploy profile."""
    from trtllm_kit.spec.load import shipped_profiles

    return [name for name in shipped_profiles() if name.startswith(incomplete)]


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Hugging Face folder with config.json, or a hub id (org/name).")
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile", "-p", metavar="NAME|FILE", help="Shipped profile or YAML file.", autocompletion=complete_profile
    ),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to make.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Let WARNING findings fail the verb (exit 1).")]
