"""The transformers runtime: a 16-bit checkpoint on a GPU without TensorRT-LLM, by PyTorch and transformers.

It is there to serve the same repository for real where TensorRT-LLM is not: the same tensors and metrics, in-flight
batches in the order of ``trtllm_kit.estimate``'s engine, and a KV pool of the plan's size. It is no fast server: see
``batch``. ``trtllm_kit`` must be in the server's Python.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence as Tokens
from dataclasses import replace
from pathlib import Path
from typing import Any

from ask import Ask, Refused
from faults import BadFaults, faults_of
from pacer import Pacer
from runtime import Sink, Statistics, Ticket
from sequence import TextTurn, Token, begin
from settings import BadSettings, Settings
from text import Detokenizer
from timing import NoPlan, computing_engine, plan_beside

_QUANTISED = "hf_quant_config.json"


class TransformersRuntime:
    """Runs the checkpoint on the first GPU; on the CPU where the plan is for no real hardware."""

    def __init__(self, settings: Settings) -> None:
        try:
            self._faults = faults_of(os.environ)
            plan = plan_beside(settings.repository)
        except (BadFaults, NoPlan) as error:
            raise BadSettings(str(error)) from None
        self._faults.start_slowly()
        self._limits = settings.limits
        self._torch, self._batch, self._row = _torch_and_batch()
        device = _device(self._torch, plan)
        folder = Path(settings.checkpoint)
        self._spec, self._tokenizer = _spec_and_tokenizer(folder)
        _require_plain(folder)
        batch = _load(folder, device, settings, self._batch)
        self._together = _Together(batch)
        self._pacer = Pacer(
            computing_engine(settings.limits), settings.limits.max_queue_size, self._faults, self._together
        )
        self._pacer.start()

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer."""
        if ask.best_of > 1 or ask.lora is not None:
            raise Refused("the transformers runtime has neither sampling_param_best_of above 1 nor LoRA adapters")
        answer = _Answer(self._spec, self._tokenizer, ask, self._row)
        return begin(self._pacer, self._limits, answer, ask, sink, self._faults)

    def statistics(self) -> Statistics | None:
        """Report the engine's state, and the memory of this process and of torch on the GPU."""
        from runtime_reference import resident_bytes

        state = self._pacer.statistics()
        if state is None:
            return None
        cuda = self._torch.cuda
        held = cuda.memory_reserved() if cuda.is_initialized() else 0
        return replace(state, cpu_bytes=resident_bytes(), gpu_bytes=held)

    def close(self) -> None:
        """Stop the engine."""
        self._pacer.close()


class _Together:
    """Hands the requests of the pacer's steps to the batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def step(self, turns: list[TextTurn]) -> None:
        """Compute the next token of each."""
        self._batch.step([turn.sequence.row for turn in turns])  # type: ignore[attr-defined]

    def leave(self, turn: TextTurn) -> None:
        """Free what a request holds."""
        self._batch.leave(turn.sequence.row)  # type: ignore[attr-defined]


class _Answer:
    """The sequence of one request: its row in the batch, and its text."""

    def __init__(self, spec: Any, tokenizer: Any, ask: Ask, row: Any) -> None:
        self.prompt: tuple[int, ...] = tuple(tokenizer.encode(ask.prompt).ids)
        if max(self.prompt, default=0) >= spec.vocab:
            raise Refused(f"the prompt has token {max(self.prompt)}, the model's vocabulary ends at {spec.vocab - 1}")
        self.row = row(self.prompt, ask)
        self._ends = spec.eos_tokens
        self._text = Detokenizer(lambda tokens: _decode(tokenizer, tokens))

    def write(self) -> Token:
        """Return the token that the batch chose in this step; of one whose client has gone the end."""
        token, logprob = self.row.token, self.row.logprob
        if self.row.gone or token in self._ends:
            return Token("", logprob, last=True)
        return Token(self._text.push(token), logprob)

    def rest(self) -> str:
        """Return what the detokeniser holds back."""
        return self._text.flush()


def _torch_and_batch() -> tuple[Any, Any, Any]:
    """Return torch, the batch and what makes a row; raises ``BadSettings`` where a package is missing."""
    try:
        import torch

        from batch import Batch, Row
        from choice import Chooser
    except (ImportError, OSError) as error:
        raise BadSettings(
            f"the transformers runtime needs torch and transformers in the server's Python: {error}"
        ) from None
    return torch, Batch, lambda prompt, ask: Row(prompt, ask.max_tokens, Chooser(ask))


def _device(torch: Any, plan: Any) -> str:
    """Return where to compute; a plan for GPUs is not served on a CPU by accident."""
    if torch.cuda.is_available():
        return "cuda"
    if plan is not None:
        from trtllm_kit.spec.load import load_hardware

        if not load_hardware(plan.hardware).is_rehearsal:
            raise BadSettings(f"the plan is for {plan.hardware}, and torch {torch.__version__} finds no GPU here")
    return "cpu"


def _spec_and_tokenizer(folder: Path) -> tuple[Any, Any]:
    try:
        from trtllm_kit.checkpoint.load import load_tokenizer
        from trtllm_kit.errors import KitError
        from trtllm_kit.spec.load import load_model
    except ModuleNotFoundError as error:
        raise BadSettings(
            f"the transformers runtime needs trtllm-kit[rehearsal] in the server's Python: {error}"
        ) from None
    try:
        return load_model(folder), load_tokenizer(folder)
    except KitError as error:
        raise BadSettings(str(error)) from None


def _require_plain(folder: Path) -> None:
    """Refuse a quantised checkpoint: its scales are TensorRT-LLM's to apply."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    if "quantization_config" in config or (folder / _QUANTISED).is_file():
        raise BadSettings(
            f"the checkpoint {folder.name} is quantised, and the transformers runtime computes in 16 bit: "
            "set quantization.weights and quantization.kv_cache to bf16 in the profile"
        )
    other = sorted({kind for kind in config.get("layer_types") or () if kind != "full_attention"})
    if other:
        raise BadSettings(f"the model has layers of kind {', '.join(other)}; this runtime keeps whole sequences only")


def _load(folder: Path, device: str, settings: Settings, make: Any) -> Any:
    """Return the batch over the loaded model, after a first step that takes the pool's memory."""
    import torch
    from transformers import AutoModelForCausalLM

    from kv_pool import ATTENTION, Blocks, register

    limits = settings.limits
    register()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", local_files_only=True, attn_implementation=ATTENTION
        )
        batch = make(
            model.to(device).eval(),
            model.config.get_text_config().num_hidden_layers,
            Blocks(limits.kv_blocks, limits.tokens_per_block),
        )
        longest = min(limits.max_seq_len, limits.kv_blocks * limits.tokens_per_block)
        _first_steps(batch, longest)
        if device == "cuda":
            sys.stderr.write(f"recorded {batch.record(limits.max_batch_size, longest)} graphs\n")
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        raise BadSettings(
            f"weights and {limits.kv_blocks} KV blocks do not fit the GPU ({free:,} of {total:,} bytes are free): "
            f"lower kv_cache.free_gpu_memory_fraction in the profile: {error}"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise BadSettings(f"transformers cannot load {folder.name}: {error}") from None
    return batch


def _first_steps(batch: Any, longest: int) -> None:
    """Read a prompt and write a token, so that kernels are there and the pool has its memory."""
    from batch import Row
    from choice import Chooser

    row = Row((0,) * max(1, min(8, longest - 2)), 2, Chooser(Ask(prompt="")))
    for _ in range(min(2, longest)):
        batch.step([row])
    batch.leave(row)
    batch.step([])


def _decode(tokenizer: Any, tokens: Tokens[int]) -> str:
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True)
    return text
