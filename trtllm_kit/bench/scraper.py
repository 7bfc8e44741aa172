"""A program beside the client: reads a metrics page again and again, and prints each reading with its clock.

It is a process of its own, because parsing a page in the client's would make the client late. On one machine all
processes read the same monotonic clock. ``python -m trtllm_kit.bench.scraper URL SECONDS [CA [nvml]]`` prints
a JSON object a line.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.sources.nvml import read_gpus
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
    "trtkit_gpu_",
)
"""Beginnings of the families that are kept."""


def main(url: str, seconds: float, ca: str = "", nvml: str = "") -> None:
    """Read for ever; ``ca`` names a file of certificates to trust, and ``nvml`` asks the driver of this machine too."""
    access = Access(ca_file=ca) if ca else ANYBODY
    while True:
        begun = time.monotonic()
        sys.stdout.write(json.dumps({"clock": begun} | reading(url, access, nvml=bool(nvml))) + "\n")
        sys.stdout.flush()
        time.sleep(max(seconds - (time.monotonic() - begun), 0.0))


def reading(url: str, access: Access, *, nvml: bool) -> dict[str, Any]:
    """Return what the page at ``url`` and the driver tell now, each where it is asked."""
    families: dict[str, Any] = {}
    ok, reason = True, ""
    if url:
        snapshot = scrape(url, _TIMEOUT_SECONDS, access=access)
        families, ok, reason = dict(snapshot.series), snapshot.ok, snapshot.reason
    if nvml:
        told, why = read_gpus()
        families, ok, reason = families | told, ok and not why, reason or why
    values = {
        "{}{{{}}}".format(family, ",".join(f'{name}="{value}"' for name, value in labels)): number
        for family, series in families.items()
        if family.startswith(PREFIXES) and not family.endswith("_bucket")
        for labels, number in series.items()
    }
    return {"ok": ok, "reason": reason, "values": values}


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
