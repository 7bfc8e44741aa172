"""Where the serving machine finds what a repository of engines names by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.build.llm_api import CHECKPOINT
from trtllm_kit.plan.plan import Plan

MODEL = "tensorrt_llm"
"""The model's name, as upstream's repositories have it."""
VERSION_FOLDER = f"{MODEL}/1"
LINK = f"{VERSION_FOLDER}/{CHECKPOINT}"
ENGINE_LINK = f"{VERSION_FOLDER}/engine"


@dataclass(frozen=True)
class Places:
    """Absolute paths, as the server sees them."""

    engine: str
    """Folder with ``config.json`` and one file a rank."""
    tokenizer: str


def places_of(plan: Plan, repository: Path) -> Places:
    """Return the paths that the profile gives, else those of the links inside the repository."""
    serve, here = plan.serve, repository.absolute()
    return Places(
        engine=serve.engine_path or str(here / ENGINE_LINK),
        tokenizer=serve.checkpoint_path or str(here / LINK),
    )
