"""Runs ``doctor_worker.calibrate`` in a Python that has torch, and reads what it measured."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtllm_kit.doctor.ask import Ask, ask, ask_program
from trtllm_kit.errors import MeasuringFailed, MissingExtra
from trtllm_kit.resources import package_file
from trtllm_kit.strict_json import parse_json

PARTS = ("launch", "gemm", "generation", "context", "memory", "small", "links")
NEEDED = ("torch", "triton")
MEASURING_SECONDS = 165.0
"""Nothing more is measured after these; what is under way ends within the rest of three minutes."""
WHOLE_SECONDS = 240.0
_MOST_VALUES = 200_000


def measure(python: str, parts: Sequence[str] = PARTS, *, small: bool = False, run: Ask = ask) -> Mapping[str, Any]:
    """Return what was measured: ``machine``, ``parts``, ``failed``.

    Raises ``MissingExtra`` for an environment without torch or triton, ``MeasuringFailed`` where nothing came of it.
    """
    versions, why = ask_program("versions.py", *NEEDED, python=python, run=run)
    lacking = [name for name in NEEDED if name not in versions]
    if why or lacking:
        raise MissingExtra(
            f"{python} cannot measure a card",
            why=why or f"it has no {' and no '.join(lacking)}",
            hint="name an environment that has torch with CUDA: trtkit doctor calibrate --python PYTHON",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        argv = [python, "-I", str(package_file("doctor_worker", "measure.py")), str(file), "--only", *parts]
        argv += ["--seconds", f"{MEASURING_SECONDS:g}", *(["--small"] if small else [])]
        answer = run(*argv, seconds=WHOLE_SECONDS)
        found: Any = parse_json(file.read_bytes(), _MOST_VALUES) if file.exists() else None
    if not isinstance(found, dict) or not found["machine"]["cards"]:
        raise MeasuringFailed(
            f"{python} measured nothing",
            why=answer.why or ("torch sees no GPU there" if found else "it left no results"),
            hint="run nvidia-smi, and `python -c 'import torch; print(torch.cuda.is_available())'` there",
        )
    return found
