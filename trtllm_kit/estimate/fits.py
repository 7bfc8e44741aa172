"""Whether a request can run at all: its lengths against the limits of a step, of a sequence and of the cache."""

from __future__ import annotations

from trtllm_kit.estimate.kv_blocks import Pool
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.workload import Request


class NeverFits(Exception):
    """A request that the engine would refuse; the message says which limit it is above."""


def require_fit(request: Request, subject: Subject, pool: Pool) -> None:
    """Raise ``NeverFits`` for a request that no step could hold, or that is more than a whole cache of ``pool``."""
    total = request.prompt + request.most
    if request.prompt < 1 or request.answer < 1:
        raise NeverFits(f"prompt {request.prompt}, answer {request.answer}: each has at least 1 token")
    if total > subject.max_seq_len:
        raise NeverFits(f"{request.prompt} + {request.most} tokens, above max_seq_len {subject.max_seq_len}")
    if not subject.chunked_prefill and request.prompt > subject.max_num_tokens:
        raise NeverFits(f"prompt of {request.prompt} tokens, above max_num_tokens {subject.max_num_tokens}")
    need = pool.blocks_of(total + subject.width - 1)
    if need > pool.blocks:
        raise NeverFits(f"{need} KV blocks, above the {pool.blocks} of the cache")
