"""What the forward passes of a conversion take: time and the most anonymous memory of each phase.

``passes.py [LAYERS ...]`` (default 2): for a model of so many layers of the shape of Llama 3.1 8B, with its vocabulary
of 128,256, one conversion to FP8 with an FP8 KV cache in a process of its own: calibration on 16 samples of 256
tokens, the writing, and the quality report on 768 tokens. At most 600 MiB is asked, and no more for more layers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

VOCAB = 128_256
ASKED_MIB = 600
MIB = 1 << 20


def main(layers: list[int]) -> int:
    """Convert a model of each size and print one line a phase; 1 when one takes more memory than is asked."""
    from benchmarks.synthetic import random_layers

    most = 0.0
    with tempfile.TemporaryDirectory(prefix="trtkit-passes-", dir=os.environ.get("TRTKIT_BENCH_DIR")) as scratch:
        source, out = Path(scratch) / "model", Path(scratch) / "out"
        for count in layers:
            size = random_layers(source, count, VOCAB)
            command = [sys.executable, __file__, "once", str(source), str(out)]
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"passes of {count} layers, {size / 1e9:.2f} GB", flush=True)
            for phase in told["phases"]:
                peak = phase["anonymous_bytes"] / MIB
                print(f"  {phase['label']:32} {phase['seconds']:8.2f} s {peak:6.0f} MiB anonymous", flush=True)
            most = max(most, told["anonymous_bytes"] / MIB)
            shutil.rmtree(source)
            shutil.rmtree(out, ignore_errors=True)
    print(f"anonymous memory of the forward passes at most {most:.0f} MiB, asked {ASKED_MIB}")
    return int(most > ASKED_MIB)


def once(source: Path, out: Path) -> None:
    """Convert one model, watched, and print what it took as JSON."""
    from benchmarks.gpu.watched import Watch
    from tests.checkpoint.plans import plan_for
    from trtllm_kit.checkpoint.convert import convert
    from trtllm_kit.errors import QualityGateFailed

    plan = plan_for(source, "fp8", "fp8", samples=16, tokens_per_sample=256)
    with Watch() as watch, suppress(QualityGateFailed):  # what random weights lose says nothing
        convert(source, plan, out, watch)
    print(json.dumps(watch.told()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["once"]:
        once(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main([int(count) for count in sys.argv[1:]] or [2]))
