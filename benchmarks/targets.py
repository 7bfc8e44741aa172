"""Seconds to make every deploy target of the largest profiles, after start-up: ``make bench`` prints them.

The files are made in this process and nothing is written: what it takes beyond that is the disk's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.plan.conftest import golden_model  # noqa: E402  # the checkout is no package
from trtllm_kit.cli.deploy_targets import targets_of  # noqa: E402
from trtllm_kit.plan.decide import make_plan  # noqa: E402
from trtllm_kit.plan.remedies import with_changes  # noqa: E402
from trtllm_kit.serve.targets.table import TARGETS  # noqa: E402
from trtllm_kit.spec.load import hardware_for, load_profile  # noqa: E402

PROFILES = ("gb200-nvl72-llama3.1-405b-nvfp4", "gh200-nvl32-llama3.1-405b-fp8")
MODEL = "llama-3.1-405b"
RUNS = 7
LOCAL = "h200x8-offline"
"""Of target local, which takes no replica over nodes."""


def main() -> None:
    """Print a line a profile."""
    for name in PROFILES:
        hosts = [f"node{number}" for number in range(18 if "nvl72" in name else 16)]
        changes: dict[str, object] = {"deploy.hosts": hosts, "deploy.dynamo_image": "registry.example.com/dynamo:1"}
        others = [target for target in TARGETS if target != "local"]
        files, seconds = made(name, MODEL, changes, others)
        print(f"targets   {name}: {files} files of {', '.join(others)} in {seconds:.3f} s, median of {RUNS}")
    files, seconds = made(LOCAL, "llama-3.1-70b", {}, ["local"])
    print(f"targets   {LOCAL}: {files} files of local in {seconds:.3f} s, median of {RUNS}")


def made(name: str, model: str, changes: dict[str, object], targets: list[str]) -> tuple[int, float]:
    """Make the targets of a profile; return the number of files and the median seconds."""
    loaded = with_changes(load_profile(name), changes)
    asked = (loaded, hardware_for(loaded.profile))
    plan = make_plan(golden_model(model), *asked)
    files = sum(len(one.files) for one in targets_of(targets, plan, asked, Path("repository"), None))
    return files, timed(lambda: targets_of(targets, plan, asked, Path("repository"), None))


def timed(work: Callable[[], object]) -> float:
    """Return the median seconds of a work."""
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
