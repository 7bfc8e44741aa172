"""Timings as ratios to a baseline of the same run: ``make bench``, which runs the other programs here too.

plan      the whole ``trtkit plan`` of a 405B model against ``trtkit --version``
lint      the whole ``trtkit lint`` of a Triton repository of five models against ``trtkit --version``
health    the whole ``trtkit check-health`` of a local page against ``trtkit --version``
"""

from __future__ import annotations

import http.server
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.lint.five_models import write_five_models  # noqa: E402  # the checkout is no package

TRTKIT = str(Path(sys.executable).parent / "trtkit")
RUNS = 15
PAGE = (ROOT / "tests" / "health" / "pages" / "triton-2.51-simulated-idle.prom").read_bytes()


def main() -> int:
    """Run every comparison and print one line each."""
    with tempfile.TemporaryDirectory(prefix="trtkit-bench-") as scratch:
        folder = Path(scratch)
        against_version("plan of 405B", lambda: command("plan", model_405b(folder), "-p", NVL32))
        against_version("lint of five models", lambda: command("lint", five_models(folder)))
        with page_server() as url:
            against_version("check-health", lambda: command("check-health", "--url", url, "-p", CPU, "--samples", "1"))
    return 0


NVL32, CPU = "gh200-nvl32-llama3.1-405b-fp8", "cpu-rehearsal-smollm2"


def against_version(what: str, work: Callable[[], object]) -> None:
    """Print one comparison, of runs that take turns, so that both meet the same moments of the machine."""
    seconds, baseline = medians(work, lambda: command("--version"))
    more = f"{1000 * (seconds - baseline):+.0f} ms"
    ratio = f"{seconds / baseline:6.2f} x --version"
    print(f"{what:28} {seconds:8.3f} s   {ratio} ({baseline:.3f} s, {more}), medians of {RUNS}")


def medians(*works: Callable[[], object]) -> list[float]:
    """Return the median duration of each, seconds: ``RUNS`` in turns after one that warms up."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(RUNS + 1):
        for work, taken in zip(works, seconds, strict=True):
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken[1:]) for taken in seconds]


def command(*arguments: str | Path) -> None:
    """Run the installed command; its verdict does not matter here, a crash does."""
    # pip compiles what it installs; a checkout whose user keeps bytecode from being written is not what is timed
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([TRTKIT, *map(str, arguments)], capture_output=True, text=True, check=False, env=kept)
    assert "Traceback" not in done.stderr, done.stderr


def model_405b(folder: Path) -> Path:
    """Make a folder with the configuration of Llama 3.1 405B."""
    model = folder / "llama-3.1-405b"
    model.mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests" / "golden" / "models" / "llama-3.1-405b.json", model / "config.json")
    return model


def five_models(folder: Path) -> Path:
    """Write a repository of five models, once."""
    root = folder / "repository"
    return root if root.is_dir() else write_five_models(root)


class page_server:  # noqa: N801  # reads as a verb
    """Serve one metrics page on loopback."""

    def __enter__(self) -> str:
        """Start and return the URL."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(PAGE)))
                self.end_headers()
                self.wfile.write(PAGE)

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
