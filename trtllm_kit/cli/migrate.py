"""``trtkit migrate``: off the removed engine backend, and across releases."""

from __future__ import annotations

import typer

from trtllm_kit.cli import migrate_checkpoint, migrate_compare, migrate_engine, migrate_yaml

app = typer.Typer(
    help="Off the removed engine backend, and across releases: settings, checkpoints, proof of equal answers.",
    no_args_is_help=True,
)
app.command("checkpoint")(migrate_checkpoint.checkpoint)
app.command("compare")(migrate_compare.compare)
app.command("engine")(migrate_engine.engine)
app.command("yaml")(migrate_yaml.yaml)
