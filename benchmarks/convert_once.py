"""One conversion in a process of its own: ``SOURCE FORMAT OUT`` prints the most anonymous memory it took, MiB.

Without ``OUT`` it prints the seconds that the list of tensors took.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.checkpoint.plans import plan_for
from trtllm_kit.checkpoint.convert import conversion_steps, convert
from trtllm_kit.progress import Silent


class Watch(threading.Thread):
    """Looks at the process's anonymous memory fifty times a second."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__(daemon=True)
        self.most_kib = 0

    def run(self) -> None:
        """Look for as long as the process lives."""
        while True:
            status = Path("/proc/self/status").read_text()
            self.most_kib = max(self.most_kib, int(status.partition("RssAnon:")[2].split()[0]))
            time.sleep(0.02)


def main(source: Path, number_format: str, out: Path | None) -> None:
    """Convert, or list."""
    plan = plan_for(source, number_format)  # type: ignore[arg-type]
    if out is None:
        begun = time.perf_counter()
        assert conversion_steps(source, plan)
        print(time.perf_counter() - begun)
        return
    watch = Watch()
    watch.start()
    convert(source, plan, out, Silent())
    print(watch.most_kib / 1024)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)
