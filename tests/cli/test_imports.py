"""What a verb imports before it begins: every module costs its start, and most verbs need few."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).parents[1] / "golden" / "models" / "llama-3.1-405b.json"
CODE = """
import sys
from trtllm_kit.cli.app import run
code = run(["plan", sys.argv[1], "-p", "gh200-nvl32-llama3.1-405b-fp8"])
print(code, *sorted(sys.modules), file=sys.stderr)
"""
LEFT_ALONE = {
    "numpy",
    "yaml",
    "trtllm_kit.plan.remedies",
    "trtllm_kit.plan.given.commands",
    "trtllm_kit.spec.hf_gemma",
    "trtllm_kit.spec.yaml_tree",
}


def test_a_plan_that_fits_imports_what_it_needs(tmp_path: Path) -> None:
    """Shipped profiles need no YAML parser, a Llama no reader of another family, and what fits no remedies."""
    shutil.copy(MODEL, tmp_path / "config.json")
    ran = subprocess.run([sys.executable, "-c", CODE, tmp_path], capture_output=True, text=True, check=True)
    code, *modules = ran.stderr.split()
    assert ("0", set()) == (code, LEFT_ALONE & set(modules))
    assert "trtllm_kit.plan.settle" in modules
