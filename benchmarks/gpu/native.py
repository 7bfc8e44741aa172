"""One conversion by trtkit, watched: ``python -m benchmarks.gpu.native MODEL PROFILE OUT``; prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.gpu.watched import Watch
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.cli.asked import asked_for
from trtllm_kit.plan.decide import make_plan, require_ok
from trtllm_kit.spec.load import load_model


def main(model: str, profile: str, out: str) -> int:
    """Convert as ``trtkit convert`` does and print what it took."""
    with Watch() as watch:
        loaded, hardware = asked_for(profile)
        plan = make_plan(load_model(Path(model)), loaded, hardware)
        require_ok(plan)
        conversion = convert(Path(model), plan, Path(out), watch)
    facts = conversion.manifest.facts
    kept = {name: facts[name] for name in ("weight_bytes", "quality", "calibration") if name in facts}
    print(json.dumps(watch.told() | kept))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
