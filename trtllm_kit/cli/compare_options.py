"""What ``trtkit migrate compare`` takes on its command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OldArgument = Annotated[str, typer.Argument(metavar="OLD_URL", help="The deployment that is to be replaced.")]
NewArgument = Annotated[str, typer.Argument(metavar="NEW_URL", help="The deployment that is to replace it.")]
PromptsOption = Annotated[
    str, typer.Option("--prompts", metavar="FILE|COUNT", help="A prompt a line, or .jsonl; or how many to make.")
]
MaxTokensOption = Annotated[
    int, typer.Option("--max-tokens", metavar="COUNT", min=1, max=1 << 20, help="Longest answer.")
]
LongestOption = Annotated[
    int, typer.Option("--isl", metavar="WORDS", min=1, max=1 << 20, help="Longest prompt that is made.")
]
UsersOption = Annotated[
    int, typer.Option("--concurrency", metavar="COUNT", min=1, max=4096, help="Requests under way at once.")
]
ApiOldOption = Annotated[str | None, typer.Option("--api-old", metavar="NAME", help="As --api of trtkit bench.")]
ApiNewOption = Annotated[str | None, typer.Option("--api-new", metavar="NAME", help="The same of the new one.")]
ModelOldOption = Annotated[str | None, typer.Option("--model-old", metavar="NAME", help="What it calls the model.")]
ModelNewOption = Annotated[str | None, typer.Option("--model-new", metavar="NAME", help="The same of the new one.")]
TokenizerOption = Annotated[
    Path | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="Of the model: counts tokens, finds the first other one."),
]
TokenizerNewOption = Annotated[
    Path | None, typer.Option("--tokenizer-new", metavar="FOLDER", help="Of the new one.", show_default="the same")
]
BearerOldOption = Annotated[
    str | None, typer.Option("--bearer-old", metavar="FILE", help="File with the bearer token of the old one.")
]
BearerNewOption = Annotated[
    str | None, typer.Option("--bearer-new", metavar="FILE", help="File with the bearer token of the new one.")
]
WholeOption = Annotated[bool, typer.Option("--whole", help="Ask for whole answers only.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="KIND",
        help="Let a known difference pass: special-token, echo, cut-character, leading-blank or trailing-blank.",
    ),
]
AllowDifferentOption = Annotated[
    int, typer.Option("--allow-different", metavar="COUNT", min=0, help="Answers that may differ.")
]
SlowerOption = Annotated[
    str | None,
    typer.Option("--slower-by", metavar="SHARE", help="How much slower it may be, e.g. 10%.", show_default="any"),
]
