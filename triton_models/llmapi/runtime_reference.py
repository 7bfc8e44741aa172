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
from batcher import Batcher
from runtime import Sink, Statistics, Ticket
from sequence import Token
from settings import BadSettings, Settings
from text import Detokenizer


class ReferenceRuntime:
    """Runs the converted checkpoint through the batcher, one sequence after the other within a step."""

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
        self._batcher = Batcher(settings.limits)
        self._batcher.start()

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer."""
        if ask.best_of > 1 or ask.lora is not None:
            raise Refused("the reference runtime has neither sampling_param_best_of above 1 nor LoRA adapters")
        return self._batcher.submit(_Answer(self._model, self._tokenizer, ask), ask, sink)

    def statistics(self) -> Statistics | None:
        """Report the batcher's state and this process's memory."""
        state = self._batcher.statistics()
        return None if state is None else replace(state, cpu_bytes=resident_bytes())

    def close(self) -> None:
        """Stop the batcher."""
        self._batcher.close()


class _Answer:
    """The sequence of one request: prompt tokens, KV cache, sampler and detokeniser."""

    def __init__(self, model: Any, tokenizer: Any, ask: Ask) -> None:
        self._model = model
        self._prompt: list[int] = tokenizer.encode(ask.prompt).ids
        self.prompt_tokens = len(self._prompt)
        if max(self._prompt, default=0) >= model.spec.vocab:
            raise Refused(
                f"the prompt has token {max(self._prompt)}, the model's vocabulary ends at {model.spec.vocab - 1}"
            )
        self._read = 0
        self._cache: Any = None
        self._logits: Any = None
        self._last: int | None = None
        self._sampler = _sampler(ask)
        self._want_logprob = ask.cumulative_logprob
        self._text = Detokenizer(lambda tokens: _decode(tokenizer, tokens))

    def read(self, tokens: int) -> None:
        """Run the next prompt tokens."""
        if self._cache is None:
            self._cache = self._model.new_cache()
        self._forward(self._prompt[self._read : self._read + tokens])
        self._read += tokens

    def write(self) -> Token:
        """Run the last picked token, if any, and pick the next."""
        if self._last is not None:
            self._forward([self._last])
        self._last = self._sampler.pick(self._logits)
        logprob = _log_probability(self._logits, self._last) if self._want_logprob else 0.0
        if self._last in self._model.spec.eos_tokens:
            return Token("", logprob, last=True)
        return Token(self._text.push(self._last), logprob)

    def rest(self) -> str:
        """Return what the detokeniser holds back."""
        return self._text.flush()

    def _forward(self, tokens: Tokens[int]) -> None:
        self._logits = self._model.forward(tokens, self._cache, last_only=True)[-1]


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
