"""One path in, what it is and what the rules say of it out."""

from __future__ import annotations

from pathlib import Path

from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import ARGUMENTS, Kind, kind_of
from trtllm_kit.lint.report import Read


def lint(path: Path, context: Context) -> Read:
    """Lint what stands under a path.

    Raises ``NotLinted`` when it is none of the kinds or cannot be read, ``StorageError``, and for a Hugging Face
    folder what ``spec.load.load_model`` raises.
    """
    kind = kind_of(path)
    if kind in (Kind.SCRIPT, Kind.DOCKERFILE, Kind.MANIFEST):
        return _launch(path, kind, context)
    if kind in (Kind.REPOSITORY, Kind.TRITON_MODEL):
        from trtllm_kit.lint.repositories import lint_repository

        return lint_repository(path, kind.value, context)
    if kind is Kind.ENGINE:
        from trtllm_kit.lint.engines import lint_engine

        return lint_engine(path, kind.value, context)
    if kind in (Kind.DOCUMENT, Kind.ARGUMENTS):
        from trtllm_kit.lint.documents import lint_document

        return lint_document(path / ARGUMENTS if kind is Kind.ARGUMENTS else path, kind.value, context)
    if kind is Kind.CHECKPOINT:
        from trtllm_kit.lint.checkpoints import lint_checkpoint

        return lint_checkpoint(path, kind.value, context)
    from trtllm_kit.lint.models import lint_model

    return lint_model(path, kind.value, context)


def _launch(path: Path, kind: Kind, context: Context) -> Read:
    """Lint how a server is started: by a script, an image or a cluster."""
    if kind is not Kind.MANIFEST:
        from trtllm_kit.lint.scripts import lint_script

        return lint_script(path, kind.value, context)
    from trtllm_kit.lint.manifests import lint_manifest

    return lint_manifest(path, kind.value, context)
