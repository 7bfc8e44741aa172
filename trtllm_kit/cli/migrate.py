"""``trtkit migrate``: off the removed engine backend, and across releases."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Off the removed engine backend, and across releases: settings, checkpoints, and proof that answers stay the same.",
    no_args_is_help=True,
)
