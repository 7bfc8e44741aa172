"""What each target makes of profiles of each kind, compared with the recorded files.

After a wanted change: ``pytest tests/serve/targets/test_golden.py --update-golden``, and read the diff.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serve.targets.support import CPU, NODE, OF_ENGINES, RACK, in_pods, subject
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.serve.targets.table import TARGETS

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "targets"
COPIES: dict[str, Any] = {"name": "copies", "parallelism.tensor": 1, "parallelism.replicas": 8}
RACKS: dict[str, Any] = {"name": "rack", "parallelism.tensor": 8, "parallelism.replicas": 9}
HOSTS = {"deploy.hosts": [f"tray{number:02}" for number in range(18)]}
SCALED = {"deploy.namespace": "llm", "deploy.max_replicas": 8, "deploy.gateway": "public", "parallelism.tensor": 1}
CASES: dict[str, tuple[str, Subject]] = {
    "local.one-node": ("local", subject({"name": "node"})),
    "local.copies": ("local", subject(COPIES)),
    "local.rehearsal": ("local", subject({"name": "cpu", "parallelism.tensor": 1, "runtime": "simulated"}, CPU)),
    "local.engines": ("local", subject({"name": "engines", "parallelism.tensor": 2}, repository=OF_ENGINES)),
    "mpirun.rack": ("mpirun", subject(RACKS | HOSTS, RACK)),
    "slurm.rack": ("slurm", subject(RACKS, RACK)),
    "slurm.copies": ("slurm", subject(COPIES)),
    "kubernetes.copies": ("kubernetes", in_pods(COPIES | SCALED)),
    "kubernetes.rack": ("kubernetes", in_pods(RACKS, RACK)),
    "kubernetes.engines": (
        "kubernetes",
        in_pods({"name": "engines", "toolchain": "trtllm-build", "parallelism.tensor": 2}, repository=OF_ENGINES),
    ),
    "dynamo.rack": (
        "dynamo",
        in_pods(RACKS | {"trtllm_version": "1.3.0rc19", "deploy.prefill_replicas": 1}, RACK),
    ),
    "monitoring.node": ("monitoring", subject({"name": "node"}, NODE)),
}


RULES = ({"name": "test", "rules": [{"alert": "One", "expr": "up == 0", "labels": {"severity": "critical"}}]},)
"""In the place of the alerts, which are recorded nowhere: other tests say what they do."""
_DIGEST = re.compile(r"-build-[0-9a-f]{10}\b")


def recorded(made: Subject, target: str) -> str:
    """Lay the files of a target out in one text, and the command that applies them."""
    row = TARGETS[target]
    files = {name: _DIGEST.sub("-build-DIGEST", text) for name, text in row.files(replace(made, rules=RULES)).items()}
    parts = [f"=== {name}\n{text}" for name, text in sorted(files.items())]
    return "".join(parts) + f"=== apply\n{' '.join(row.command(made, 'FOLDER'))}\n"


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    """No line of a target's files comes, goes or changes unseen."""
    target, made = CASES[name]
    text, path = recorded(made, target), GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text("utf-8") == text


def test_no_recorded_files_are_left_over() -> None:
    """Each file is one case's, and each target has one."""
    assert set(CASES) == {path.stem for path in GOLDEN.iterdir()}
    assert set(TARGETS) == {target for target, _ in CASES.values()}
