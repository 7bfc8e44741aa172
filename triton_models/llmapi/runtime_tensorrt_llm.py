"""The TensorRT-LLM runtime: ``tensorrt_llm.LLM`` behind the same tensors, metrics included.

Imports nothing of ``trtllm_kit``. ``LLM`` binds a request to the event loop that made it, so one loop on a thread
of its own makes all requests and reads the executor's statistics.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ask import BUSY, STOPPED, Ask, Refused
from runtime import Finish, Performance, Sink, Statistics, Ticket
from settings import BadSettings, Settings
from text import StopTexts

_STATISTICS_SECONDS = 0.2
_SILENCE_SECONDS = 0.05
"""How long a read of the statistics may wait: where they come over a remote call, answers wait with it."""
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TensorrtLlmRuntime:
    """One ``LLM`` and the loop it lives in."""

    def __init__(self, settings: Settings) -> None:
        try:
            from tensorrt_llm import LLM
            from tensorrt_llm.llmapi.llm_utils import update_llm_args_with_extra_dict
        except (ImportError, OSError) as error:  # missing, or one of the libraries below it
            raise BadSettings(f"the tensorrt_llm runtime needs TensorRT-LLM in the server's Python: {error}") from None
        arguments = {"enable_iter_perf_stats": True} | settings.llm_args
        limits = settings.limits
        self._max_seq_len, self._beams = limits.max_seq_len, beam_width(arguments)
        self._max_open = limits.max_batch_size + limits.max_queue_size
        self._open: set[_Answer] = set()
        self._record: Mapping[str, Any] = {}
        self._record_us = 0
        self._begun = threading.Event()
        self._llm = LLM(**update_llm_args_with_extra_dict({}, arguments))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llm", daemon=True)
        self._thread.start()
        self._reader = self._spawn(self._read_statistics())

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer on the loop; what goes wrong there reaches the sink."""
        if len(self._open) >= self._max_open:
            raise Refused(f"queue full: {len(self._open)} requests are in the server already", BUSY)
        try:
            parameters = sampling_parameters(ask, self._beams)
        except (ValueError, TypeError) as error:
            raise Refused(f"TensorRT-LLM refuses the request: {error}") from None
        answer = _Answer(self._llm, ask, parameters, sink, self._max_seq_len, self._begun)
        self._open.add(answer)
        self._spawn(answer.run()).add_done_callback(lambda _: self._open.discard(answer))
        return answer

    def statistics(self) -> Statistics | None:
        """Report the last iteration the executor told of. An idle engine tells of none, so then its counts are 0."""
        if self._reader.done():
            return None
        told = statistics_from(self._record, self._record_us)
        if self._open:
            return told
        requests = {"active": 0, "scheduled": 0, "context": 0, "queued": 0, "paused": 0}
        return replace(told, **requests, context_tokens=0, generation_requests=0)

    def close(self) -> None:
        """Fail what still runs and shut the engine down."""
        self._spawn(self._cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._llm.shutdown()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _read_statistics(self) -> None:
        """Keep the newest record; each is handed out once, so nobody else may read them.

        There are none before the first request. The stream ends at its first silence, and until the next request
        it stays ended unless it is told that it is not: a long step is silent too.
        """
        while True:
            if self._begun.is_set():
                stream = self._llm.get_stats_async(timeout=_SILENCE_SECONDS)
                if hasattr(stream, "mark_undone"):
                    stream.mark_undone()
                async for record in stream:
                    self._record = json.loads(record) if isinstance(record, str) else record
                    self._record_us = time.time_ns() // 1000
            await asyncio.sleep(_STATISTICS_SECONDS)


class _Answer:
    """One request in the loop."""

    def __init__(
        self, llm: Any, ask: Ask, parameters: Any, sink: Sink, max_seq_len: int, begun: threading.Event
    ) -> None:
        self._llm, self._ask, self._sink, self._max_seq_len, self._begun = llm, ask, sink, max_seq_len, begun
        self._parameters = parameters
        self._stops = StopTexts(ask.stop)
        self._taken = self._sent = 0
        self._result: Any = None
        self._cancelled = False
        self._over = False

    def cancel(self) -> None:
        """Abort the request."""
        self._cancelled = True
        if self._result is not None:
            self._result.abort()

    async def run(self) -> None:
        """Generate to the end; every way out tells the sink."""
        try:
            self._begin()
            async for result in self._result:
                self._take(result)
        except Refused as refused:
            self._fail(refused)
        except (ValueError, TypeError) as error:
            self._fail(Refused(f"TensorRT-LLM refuses the request: {error}"))
        finally:
            cause = sys.exc_info()[1]
            why = f": {cause!r}" if cause is not None else ""
            self._fail(Refused(f"TensorRT-LLM ended the request without an answer{why}", STOPPED))

    def _fail(self, refused: Refused) -> None:
        if not self._over:
            self._over = True
            self._sink.fail(refused)

    def _begin(self) -> None:
        ask = self._ask
        self._result = self._llm.generate_async(
            ask.prompt, self._parameters, lora_request=_lora(ask), streaming=ask.streaming
        )
        self._begun.set()
        tokens = len(self._result.prompt_token_ids)
        too_long = tokens + ask.max_tokens > self._max_seq_len
        if self._cancelled or too_long:
            self._result.abort()
        if too_long:
            raise Refused(
                f"prompt of {tokens} tokens plus sampling_param_max_tokens {ask.max_tokens} is "
                f"{tokens + ask.max_tokens}, above max_seq_len {self._max_seq_len}"
            )

    def _take(self, result: Any) -> None:
        output = result.outputs[0]
        if result.finished:
            self._over = True
            self._sink.finish(self._finish(result, output))
            return
        text = output.text.rstrip(_BROKEN)
        piece = self._stops.push(text[self._taken :])
        self._taken = max(self._taken, len(text))
        self._sent += len(piece)
        if piece:
            self._sink.piece(piece)

    def _finish(self, result: Any, output: Any) -> Finish:
        return Finish(
            reason=output.finish_reason or "stop",
            stop_reason="" if output.stop_reason is None else str(output.stop_reason),
            text=output.text[self._sent :],
            prompt_tokens=len(result.prompt_token_ids),
            output_tokens=len(output.token_ids),
            cumulative_logprob=_cumulative_logprob(output),
            performance=_performance(getattr(output, "request_perf_metrics", None)),
        )


def beam_width(arguments: Mapping[str, Any]) -> int:
    """Return the beams of the engine, which every request must ask for; up to 1.1 they stand in ``build_config``."""
    section = arguments.get("build_config") or {}
    return int(arguments.get("max_beam_width") or section.get("max_beam_width") or 1)


def sampling_parameters(ask: Ask, beams: int = 1) -> Any:
    """Return TensorRT-LLM's ``SamplingParams``; greedy is said as ``top_k`` 1, which every release takes so.

    With several beams the best one is the answer. Raises ``Refused`` for what beams cannot do.
    """
    from tensorrt_llm import SamplingParams

    chosen: dict[str, Any] = {
        "max_tokens": ask.max_tokens,
        "frequency_penalty": ask.frequency_penalty,
        "presence_penalty": ask.presence_penalty,
        "seed": ask.seed,
        "stop": list(ask.stop) or None,
        "logprobs": 1 if ask.cumulative_logprob else None,
    }
    if beams > 1:
        _require_beams(ask, beams)
        chosen |= {"use_beam_search": True, "best_of": beams}
    elif ask.greedy:
        chosen["top_k"] = 1
    else:
        chosen |= {"temperature": ask.temperature, "top_k": ask.top_k, "top_p": ask.top_p}
    if ask.best_of > 1 and beams == 1:
        chosen["best_of"] = ask.best_of
    if ask.performance:
        chosen["return_perf_metrics"] = True
    return SamplingParams(**{name: value for name, value in chosen.items() if value is not None})


def _require_beams(ask: Ask, beams: int) -> None:
    if ask.streaming:
        raise Refused(f"this server searches {beams} beams, whose best is known at the end: leave streaming out")
    if not ask.greedy:
        raise Refused(f"this server searches {beams} beams and samples nothing: leave temperature, top_k and top_p out")
    if ask.best_of not in (1, beams):
        raise Refused(f"this server searches {beams} beams: sampling_param_best_of must be that or left out")


def statistics_from(record: Mapping[str, Any], timestamp_us: int) -> Statistics:
    """Return the statistics of one iteration record (the JSON of TensorRT-LLM's ``/metrics``) read at that time."""
    cache, batch = record.get("kvCacheStats") or {}, record.get("inflightBatchingStats") or {}
    return Statistics(
        active=record.get("numActiveRequests", 0),
        max_active=record.get("maxNumActiveRequests", 0),
        scheduled=batch.get("numScheduledRequests", 0),
        context=batch.get("numContextRequests", 0),
        queued=record.get("numQueuedRequests", 0),
        kv_max_blocks=cache.get("maxNumBlocks", 0),
        kv_free_blocks=cache.get("freeNumBlocks", 0),
        kv_used_blocks=cache.get("usedNumBlocks", 0),
        tokens_per_block=cache.get("tokensPerBlock", 0),
        kv_reused_blocks=cache.get("reusedBlocks", 0),
        context_tokens=batch.get("numCtxTokens", 0),
        generation_requests=batch.get("numGenRequests", 0),
        micro_batch_id=batch.get("microBatchId", 0),
        paused=batch.get("numPausedRequests", 0),
        iteration=record.get("iter", 0),
        timestamp_us=timestamp_us,
        cpu_bytes=record.get("cpuMemUsage", 0),
        gpu_bytes=record.get("gpuMemUsage", 0),
        pinned_bytes=record.get("pinnedMemUsage", 0),
    )


def _lora(ask: Ask) -> Any:
    if ask.lora is None:
        return None
    from tensorrt_llm.executor import LoRARequest

    return LoRARequest(ask.lora.name, ask.lora.number, ask.lora.path, ask.lora.source)


def _cumulative_logprob(output: Any) -> float:
    """Return the sum of log probabilities; the PyTorch backend gives only the single ones."""
    if output.cumulative_logprob is not None:
        return float(output.cumulative_logprob)
    total = 0.0
    for token, entry in zip(output.token_ids, output.logprobs or (), strict=False):
        total += entry[token].logprob if isinstance(entry, dict) else float(entry)
    return total


def _performance(metrics: Any) -> Performance:
    if metrics is None:
        return Performance()
    times, cache, drafts = metrics.timing_metrics, metrics.kv_cache_metrics, metrics.speculative_decoding
    return Performance(
        arrival_ns=_nanoseconds(times.arrival_time),
        first_scheduled_ns=_nanoseconds(times.first_scheduled_time),
        first_token_ns=_nanoseconds(times.first_token_time),
        last_token_ns=_nanoseconds(times.last_token_time),
        kv_total_blocks=cache.num_total_allocated_blocks,
        kv_new_blocks=cache.num_new_allocated_blocks,
        kv_reused_blocks=cache.num_reused_blocks,
        kv_missed_blocks=cache.num_missed_blocks,
        kv_hit_rate=cache.kv_cache_hit_rate,
        acceptance_rate=drafts.acceptance_rate,
        accepted_draft_tokens=drafts.total_accepted_draft_tokens,
        draft_tokens=drafts.total_draft_tokens,
    )


def _nanoseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1) * 1000
