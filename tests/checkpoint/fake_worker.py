"""An interpreter that stands in for ModelOpt's environment: it answers the probe and copies a prepared export."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trtllm_kit.plan.plan import Plan

VERSIONS = {"nvidia-modelopt": "0.47.0", "torch": "2.13.0", "transformers": "5.14.1"}
_PROGRAM = """#!{python}
import json, pathlib, shutil, sys, time
own = pathlib.Path(__file__).parent
if sys.argv[2].endswith("probe.py"):
    print(json.dumps({probe}))
else:
    with (own / "runs").open("a") as runs:
        runs.write(sys.argv[2] + chr(10))
    request = json.load(sys.stdin)
    (own / "request.json").write_text(json.dumps(request))
    {act}
"""
COPIES = """print(json.dumps({"phase": "copying", "total": 1}), flush=True)
    shutil.copytree(own / "export", request["out"])
    print(json.dumps({"done": 1}), flush=True)
    print(json.dumps({"result": {"device": "cpu"}}), flush=True)"""


def write_interpreter(folder: Path, act: str = COPIES, versions: dict[str, Any] | None = None) -> str:
    """Write the interpreter; it copies ``folder / "export"``, or does what ``act`` says."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = {"versions": VERSIONS if versions is None else versions, "device": "cpu", "gpu": "", "gpu_bytes": 0}
    path = folder / "python"
    path.write_text(_PROGRAM.format(python=sys.executable, probe=probe, act=act), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def by_modelopt(plan: Plan, python: str) -> Plan:
    """Return the plan with ModelOpt as the maker of its weights."""
    calibration = plan.calibration.model_copy(update={"maker": "modelopt", "python": python})
    return plan.model_copy(update={"calibration": calibration})


def request_of(folder: Path) -> dict[str, Any]:
    """Return what the interpreter was asked last."""
    asked: dict[str, Any] = json.loads((folder / "request.json").read_text("utf-8"))
    return asked


def runs_of(folder: Path) -> int:
    """Count how often it was run for more than its versions."""
    return len((folder / "runs").read_text("utf-8").splitlines())
