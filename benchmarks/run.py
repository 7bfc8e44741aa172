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
RUNS = 5
PAGE = (ROOT / "tests" / "health" / "pages" / "triton-2.51-simulated-idle.prom").read_bytes()


def main() -> int:
    """Run every comparison and print one line each."""
    with tempfile.TemporaryDirectory(prefix="trtkit-bench-") as scratch:
        folder = Path(scratch)
        version = median(lambda: command("--version"))
        report("plan of 405B", median(lambda: command("plan", model_405b(folder), "-p", NVL32)), "--version", version)
        report("lint of five models", median(lambda: command("lint", five_models(folder))), "--version", version)
        with page_server() as url:
            check = median(lambda: command("check-health", "--url", url, "-p", CPU, "--samples", "1"))
        report("check-health", check, "--version", version)
    return 0


NVL32, CPU = "gh200-nvl32-llama3.1-405b-fp8", "cpu-rehearsal-smollm2"


def report(what: str, seconds: float, baseline: str, baseline_seconds: float) -> None:
    """Print one comparison."""
    ratio = seconds / baseline_seconds
    more = f"{1000 * (seconds - baseline_seconds):+.0f} ms"
    print(
        f"{what:28} {seconds:8.3f} s   {ratio:6.2f} x {baseline} ({baseline_seconds:.3f} s, {more}), medians of {RUNS}"
    )


def median(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the median duration of some runs after one that warms up, seconds."""
    work()
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


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
