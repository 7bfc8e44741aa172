"""Which requests can never run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.estimate.replicas import engine_with, steps
from trtllm_kit.estimate.fits import NeverFits
from trtllm_kit.estimate.workload import Request


@pytest.mark.parametrize(
    ("request_", "changes", "says"),
    [
        (Request(16000, 500), {}, "16000 [+] 500 tokens, above max_seq_len 16384"),
        (Request(100, 10, asked=16300), {}, "100 [+] 16300 tokens"),
        (Request(9000, 10), {"chunked_prefill": False}, "prompt of 9000 tokens, above max_num_tokens 8192"),
        (Request(100, 29), {"kv_tokens": 128}, "5 KV blocks, above the 4 of the cache"),
        (Request(0, 5), {}, "prompt 0"),
    ],
)
def test_what_never_fits(request_: Request, changes: dict[str, Any], says: str) -> None:
    """A request that no step could ever hold is refused with the limit it is above."""
    with pytest.raises(NeverFits, match=says):
        engine_with(request_, **changes)


@pytest.mark.parametrize(
    ("request_", "changes"),
    [(Request(9000, 10), {}), (Request(16000, 384), {}), (Request(100, 28), {"kv_tokens": 128})],
)
def test_what_just_fits(request_: Request, changes: dict[str, Any]) -> None:
    """A request exactly at a limit runs, and a long prompt runs in chunks."""
    engine = engine_with(request_, **changes)
    steps(engine)
    assert engine.idle
