"""Run the installed command as its users do: as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"


def trtkit_path() -> str:
    """Return the installed script of the running interpreter."""
    found = shutil.which("trtkit", path=str(Path(sys.executable).parent))
    assert found, "the package is not installed: no trtkit beside the interpreter"
    return found


@dataclass(frozen=True)
class Ran:
    """What one run of the command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as the one JSON object it must be."""
        return json.loads(self.out)


def trtkit(*arguments: str | Path, timeout: float = 120, env: dict[str, str] | None = None, **options: Any) -> Ran:
    """Run ``trtkit`` with these arguments; ``env`` replaces the environment whole."""
    command = [trtkit_path(), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=os.environ if env is None else env, **options
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def config_folder(parent: Path, name: str) -> Path:
    """Make a folder that holds only the config.json of a golden model."""
    folder = parent / name
    folder.mkdir(parents=True)
    shutil.copy(MODELS / f"{name}.json", folder / "config.json")
    return folder
