"""Tabulates step times of aiconfigurator-core: run by path in that package's environment, and imported by nobody.

Reads one JSON object from standard input and writes one to standard output, all times in milliseconds.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any


def tables(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the tables that were asked for.

    ``decode`` has whole generation steps, a row for each batch and a column for each mean context, and ``attention``
    their attention alone; ``rest`` is what does not depend on cached tokens, by rows of a step; ``prompt`` the
    attention of a prompt by its tokens; ``version`` is the package's.
    """
    from aiconfigurator_core.sdk import EngineHandle

    engine = EngineHandle.compile(asked["model"], asked["system"], "trtllm", **asked["split"])
    contexts, batches = asked["contexts"], asked["batches"]

    def attention(batch: int, cached: int) -> float:
        return float(engine.mixed_step_breakdown(16, batch, cached, 2)[3])

    return {
        "version": version("aiconfigurator-core"),
        "decode": [[engine.decode_step_latency(batch, cached, 2) for cached in contexts] for batch in batches],
        "attention": [
            [engine.mixed_step_breakdown(16, batch, cached, 2)[3] for cached in contexts] for batch in batches
        ],
        "rest": [engine.mixed_step_breakdown(rows, 1, rows, 2)[1] for rows in asked["rows"]],
        "prompt": [engine.mixed_step_breakdown(tokens, 1, tokens, 2)[2] for tokens in asked["prompts"]],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(tables(json.load(sys.stdin))))
