"""Puts the stand-in on PATH under the name of the real program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def installed(folder: Path, release: str, **settings: str) -> dict[str, str]:
    """Write ``trtllm-build`` into ``folder`` and return an environment in which it is found and is that release."""
    folder.mkdir(exist_ok=True)
    program = folder / "trtllm-build"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.support.standin.trtllm_build import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    named = {f"STANDIN_{name.upper()}": value for name, value in settings.items()}
    return {**os.environ, "PATH": path, "STANDIN_RELEASE": release, **named}
