"""A stand-in for the ``tensorrt_llm`` package: takes only the names the real one takes, and generates letters.

Names and behaviour were read in NVIDIA/TensorRT-LLM: sampling_params.py @a98a9061, llmapi/llm.py @4c05a748,
executor/result.py @a678b91a. What a test wants to see or steer is in ``LLM.last``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

_LLM_NAMES = {
    "model", "backend", "tensor_parallel_size", "pipeline_parallel_size", "max_batch_size", "max_num_tokens",
    "max_seq_len", "max_beam_width", "kv_cache_config", "enable_chunked_prefill", "enable_iter_perf_stats",
    "scheduler_config", "return_perf_metrics", "trust_remote_code", "dtype", "cuda_graph_config",
    "disable_overlap_scheduler",
}  # fmt: skip


@dataclass(kw_only=True)
class SamplingParams:
    """The keyword arguments of the real class that a request could set; any other is a TypeError."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    bad: list[str] | None = None
    stop: list[str] | None = None
    include_stop_str_in_output: bool = False
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: int | None = None
    exclude_input_from_output: bool = True
    return_perf_metrics: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Refuse what the real class refuses."""
        greedy = (self.temperature, self.top_p, self.top_k) == (None, None, None) or self.top_k == 1
        if (self.best_of or 1) > 1 and greedy and not self.use_beam_search:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns")


@dataclass
class CompletionOutput:
    """One sequence of a result."""

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    request_perf_metrics: Any = None


class RequestOutput:
    """A running request; iterating it gives itself after each step."""

    def __init__(self, llm: LLM, prompt: str, params: SamplingParams, *, streaming: bool) -> None:
        self.prompt_token_ids = list(range(len(prompt)))
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.aborted = False
        self.params = params
        self._llm, self._streaming = llm, streaming
        asyncio.get_running_loop()  # the real one can only be awaited in the loop that made it

    def abort(self) -> None:
        """End with the next step."""
        self.aborted = True

    def __aiter__(self) -> RequestOutput:
        """Iterate over the steps."""
        return self

    async def __anext__(self) -> RequestOutput:
        """Make a step; without streaming all of them."""
        if self.finished:
            raise StopAsyncIteration
        self._step()
        while not (self._streaming or self.finished):
            self._step()
        await asyncio.sleep(self._llm.step_seconds)
        return self

    def _step(self) -> None:
        if self._llm.failure is not None:
            raise self._llm.failure
        output = self.outputs[0]
        output.token_ids.append(len(output.token_ids))
        output.logprobs.append({output.token_ids[-1]: SimpleNamespace(logprob=-0.25)})
        output.text = self._llm.text_of(len(output.token_ids))
        self._llm.iterations += 1
        if len(output.token_ids) == self.params.max_tokens:
            self._end("length")
        for stop in self.params.stop or ():
            if stop in output.text:
                output.text = output.text[: output.text.index(stop)]
                output.stop_reason = stop
                self._end("stop")
        if self.aborted:
            self._end("cancelled")

    def _end(self, reason: str) -> None:
        self.finished = True
        output = self.outputs[0]
        output.finish_reason = reason
        if self.params.return_perf_metrics:
            output.request_perf_metrics = _perf_metrics()


class IterationResult:
    """The stream of iteration records: a silence as long as its timeout ends it until it is marked undone."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.timeout = 2.0
        self.done = False

    def mark_undone(self) -> None:
        """Open the stream again; upstream calls it for every new request."""
        self.done = False

    def __aiter__(self) -> IterationResult:
        """Iterate over the records to come."""
        return self

    async def __anext__(self) -> Any:
        """Wait for a record as long as the timeout."""
        deadline = asyncio.get_running_loop().time() + self.timeout
        while not self.done and not self.records:
            await asyncio.sleep(0.005)
            self.done = asyncio.get_running_loop().time() > deadline
        if self.done:
            raise StopAsyncIteration
        return self.records.pop(0)


class LLM:
    """The engine; ``last`` is the one made last."""

    last: LLM

    def __init__(self, model: str, **arguments: Any) -> None:
        unknown = set(arguments) - _LLM_NAMES
        if unknown:
            raise ValueError(f"LLM got invalid argument: {sorted(unknown)[0]}")
        self.arguments = {"model": model} | arguments
        self.step_seconds = 0.002
        self.iterations = 0
        self.failure: Exception | None = None
        self.shut = False
        self.requests: list[RequestOutput] = []
        self.lora: list[Any] = []
        self.records: list[Any] = []
        self.statistics: IterationResult | None = None
        LLM.last = self

    def text_of(self, tokens: int) -> str:
        """Return the text of that many tokens."""
        return "abcdefghijklmnopqrstuvwxyz"[:tokens]

    def generate_async(
        self,
        inputs: str,
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        streaming: bool = False,
    ) -> RequestOutput:
        """Begin a request."""
        assert sampling_params is not None
        self.lora.append(lora_request)
        self.statistics = self.statistics or IterationResult(self.records)
        self.statistics.mark_undone()
        self.requests.append(RequestOutput(self, inputs, sampling_params, streaming=streaming))
        return self.requests[-1]

    def get_stats_async(self, timeout: float | None = 2) -> AsyncIterator[Any]:
        """Return the one stream of records, which the first request makes."""
        assert timeout is not None
        assert self.statistics is not None, "upstream prints a warning here before the first request"
        self.statistics.timeout = timeout
        return self.statistics

    def shutdown(self) -> None:
        """Note that it was called."""
        self.shut = True


def _perf_metrics() -> Any:
    return SimpleNamespace(
        timing_metrics=SimpleNamespace(
            arrival_time=timedelta(seconds=76735, microseconds=1),
            first_scheduled_time=timedelta(seconds=76735, microseconds=2),
            first_token_time=timedelta(seconds=76735, microseconds=30),
            last_token_time=timedelta(seconds=76735, microseconds=400),
        ),
        kv_cache_metrics=SimpleNamespace(
            num_total_allocated_blocks=4,
            num_new_allocated_blocks=3,
            num_reused_blocks=1,
            num_missed_blocks=2,
            kv_cache_hit_rate=0.25,
        ),
        speculative_decoding=SimpleNamespace(acceptance_rate=0.5, total_accepted_draft_tokens=2, total_draft_tokens=4),
    )
