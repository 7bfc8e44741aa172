"""The link by which an engine or a repository finds its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from trtllm_kit.errors import storage_error


def point(link: Path, checkpoint: Path) -> None:
    """Make ``link`` a relative symbolic link to a checkpoint, replacing a link that leads elsewhere.

    It is relative to where it really lies, whatever links lead there. In a stage it may be made before the stage gets
    its name, which stands in the same folder. Raises ``StorageError``.
    """
    try:
        target = os.path.relpath(checkpoint.resolve(), link.parent.resolve())
        if link.is_symlink() and str(link.readlink()) == target:
            return
        link.unlink(missing_ok=True)
        link.symlink_to(target, target_is_directory=True)
    except OSError as error:
        raise storage_error(error, "linking the checkpoint") from error
