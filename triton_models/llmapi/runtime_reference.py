"""The reference runtime: real text on the CPU from the checkpoint that ``trtkit convert`` wrote.

A thin adapter over ``trtllm_kit``: its numpy forward pass loads the checkpoint, dequantises by the stored scales
and keeps the KV cache in the format the checkpoint asks for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence as Tokens
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ask import Ask, Refused
from faults import BadFaults, faults_of
from pacer import Pacer
from runtime import Sink, Statistics, Ticket
from sequence import Token, begin
from settings import BadSettings, Settings
from text import Detokenizer
from timing import computing_engine


class ReferenceRuntime:
    """Runs the converted checkpoint in an engine that batches in flight, one sequence after the other within a step."""

    def __init__(self, settings: Settings) -> None:
        try:
            from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
        except ModuleNotFoundError as error:
            raise BadSettings(
                f"the reference runtime needs trtllm-kit[rehearsal] in the server's Python: {error}"
            ) from None
        folder = Path(settings.checkpoint)
        self._model = load_reference(folder, settings.limits.max_seq_len)
        self._tokenizer = load_tokenizer(folder)
        try:
            self._faults = faults_of(os.environ)
        except BadFaults as error:
            raise BadSettings(str(error)) from None
        self._faults.start_slowly()
        self._limits = settings.limits
        self._pacer = Pacer(computing_engine(settings.limits), settings.limits.max_queue_size, self._faults)
        self._pacer.start()

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer."""
        if ask.best_of > 1 or ask.lora is not None:
            raise Refused("the reference runtime has neither sampling_param_best_of above 1 nor LoRA adapters")
        answer = _Answer(self._model, self._tokenizer, ask)
        return begin(self._pacer, self._limits, answer, ask, sink, self._faults)

    def statistics(self) -> Statistics | None:
        """Report the engine's state and this process's memory."""
        state = self._pacer.statistics()
        return None if state is None else replace(state, cpu_bytes=resident_bytes())

    def close(self) -> None:
        """Stop the engine."""
        self._pacer.close()


class _Answer:
    """The sequence of one request: prompt tokens, KV cache, sampler and detokeniser."""

    def __init__(self, model: Any, tokenizer: Any, ask: Ask) -> None:
        self._model = model
        self.prompt: tuple[int, ...] = tuple(tokenizer.encode(ask.prompt).ids)
        if max(self.prompt, default=0) >= model.spec.vocab:
            raise Refused(
                f"the prompt has token {max(self.prompt)}, the model's vocabulary ends at {model.spec.vocab - 1}"
            )
        self._cache: Any = None
        self._logits: Any = None
        self._given: Tokens[int] = self.prompt
        self._sampler = _sampler(ask)
        self._want_logprob = ask.cumulative_logprob
        self._text = Detokenizer(lambda tokens: _decode(tokenizer, tokens))

    def write(self) -> Token:
        """Run the prompt, or the token picked last, and pick the next."""
        if self._cache is None:
            self._cache = self._model.new_cache()
        self._logits = self._model.forward(self._given, self._cache, last_only=True)[-1]
        token = self._sampler.pick(self._logits)
        self._given = (token,)
        logprob = _log_probability(self._logits, token) if self._want_logprob else 0.0
        if token in self._model.spec.eos_tokens:
            return Token("", logprob, last=True)
        return Token(self._text.push(token), logprob)

    def rest(self) -> str:
        """Return what the detokeniser holds back."""
        return self._text.flush()


def resident_bytes() -> int:
    """Return the resident memory of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _sampler(ask: Ask) -> Any:
    from trtllm_kit.reference.sampling import Sampler

    return Sampler(
        temperature=0.0 if ask.greedy else 1.0 if ask.temperature is None else ask.temperature,
        top_k=ask.top_k or 0,
        top_p=1.0 if ask.top_p is None else ask.top_p,
        seed=ask.seed or 0,
        frequency_penalty=ask.frequency_penalty or 0.0,
        presence_penalty=ask.presence_penalty or 0.0,
    )


def _decode(tokenizer: Any, tokens: Tokens[int]) -> str:
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True)
    return text


def _log_probability(logits: Any, token: int) -> float:
    """Return the natural logarithm of the token's softmax probability."""
    shifted = logits - np.max(logits)
    return float(shifted[token] - np.log(np.sum(np.exp(shifted))))
