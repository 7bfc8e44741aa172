"""A program beside the client: reads a metrics page again and again, and prints each reading with its clock.

It is a process of its own, because parsing a page in the client's would make the client late. On one machine all
processes read the same monotonic clock. ``python -m trtllm_kit.bench.scraper URL SECONDS`` prints a JSON object a line.
"""

from __future__ import annotations

import json
import sys
import time

from trtllm_kit.health.sources.prometheus_text import scrape

_TIMEOUT_SECONDS = 2.0
PREFIXES = (
    "nv_trt_llm_",
    "trtllm_",
    "nv_gpu_",
    "nv_energy_",
    "nv_inference_pending",
    "nv_inference_queue",
    "DCGM_FI_",
    "dynamo_",
)
"""Beginnings of the families that are kept."""


def main(url: str, seconds: float) -> None:
    """Read for ever."""
    while True:
        begun = time.monotonic()
        snapshot = scrape(url, _TIMEOUT_SECONDS)
        values = {
            "{}{{{}}}".format(family, ",".join(f'{name}="{value}"' for name, value in labels)): number
            for family, series in snapshot.series.items()
            if family.startswith(PREFIXES) and not family.endswith("_bucket")
            for labels, number in series.items()
        }
        line = {"clock": begun, "ok": snapshot.ok, "reason": snapshot.reason, "values": values}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        time.sleep(max(seconds - (time.monotonic() - begun), 0.0))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
