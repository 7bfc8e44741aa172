"""An FP8 checkpoint in transformers, as an FP8 engine computes it: ``python -m benchmarks.gpu.fp8_on_card``.

It is read with safetensors and torch alone, so nothing of the kit that wrote it has a say. Each quantised linear layer
divides its input by ``input_scale``, rounds it to e4m3, multiplies codes by codes (on the card with its own FP8
product, ``torch._scaled_mm``) and applies both scales to the result. Keys and values make a round trip through e4m3
on their way into the cache, behind the rotation, where the runtime keeps them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

E4M3 = torch.float8_e4m3fn
_LARGEST = 448.0
_PROMPTS, _PROMPT_TOKENS, _NEW_TOKENS = 8, 32, 64


def codes(values: Tensor, scale: Tensor) -> Tensor:
    """Return values over their scale, rounded to e4m3 and cut at its largest number."""
    return (values.float() / scale).clamp(-_LARGEST, _LARGEST).to(E4M3)


class Fp8Linear(nn.Module):
    """A linear layer with a static scale of its input; see the module."""

    def __init__(self, weight: Tensor, weight_scale: Tensor, input_scale: Tensor) -> None:
        super().__init__()
        self.weight, self.weight_scale, self.input_scale = weight, weight_scale.float(), input_scale.float()

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., in features) to (..., out features) in the input's format."""
        rows = codes(hidden, self.input_scale).reshape(-1, hidden.shape[-1])
        if hidden.is_cuda:
            scales = {"scale_a": self.input_scale, "scale_b": self.weight_scale}
            out = torch._scaled_mm(rows, self.weight.t(), out_dtype=hidden.dtype, **scales)
        else:
            out = (rows.float() @ self.weight.float().t() * (self.input_scale * self.weight_scale)).to(hidden.dtype)
        return out.reshape(*hidden.shape[:-1], -1)


class RoundedCache(DynamicCache):
    """A KV cache that holds e4m3; ``scales`` are those of keys and values of each layer."""

    def __init__(self, config: Any, scales: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__(config=config)
        self.scales = scales

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *more: Any, **named: Any) -> Any:
        """Round what is added."""
        rounded = (
            codes(states, scale).to(states.dtype) * scale.to(states.dtype)
            for states, scale in zip((key_states, value_states), self.scales[layer_idx], strict=True)
        )
        return super().update(*rounded, layer_idx, *more, **named)


class Runner:
    """A model with the cache that belongs to it."""

    def __init__(self, model: Any, kv_scales: list[tuple[Tensor, Tensor]] | None = None) -> None:
        self.model, self.kv_scales = model, kv_scales

    def cache(self) -> DynamicCache:
        """Return an empty cache."""
        config = self.model.config
        return DynamicCache(config=config) if self.kv_scales is None else RoundedCache(config, self.kv_scales)

    @torch.no_grad()
    def logits(self, ids: Tensor, cache: DynamicCache | None = None) -> Tensor:
        """Return float32 logits, (sequences, tokens, vocabulary)."""
        cache = self.cache() if cache is None else cache
        return self.model(ids, past_key_values=cache, use_cache=True).logits.float()

    def greedy(self, prompts: Tensor, count: int) -> Tensor:
        """Return the ``count`` most likely tokens behind each prompt, one after the other."""
        cache, tokens, made = self.cache(), prompts, []
        for _ in range(count):
            tokens = self.logits(tokens, cache)[:, -1].argmax(-1, keepdim=True)
            made.append(tokens)
        return torch.cat(made, 1)


def load_plain(folder: Path, device: str) -> Runner:
    """Load a BF16 folder."""
    return Runner(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval().to(device))


def load_fp8(folder: Path, device: str) -> Runner:
    """Load an FP8 folder of the unified layout; every tensor of it has a place, and every parameter a tensor."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path, device)
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    for name in [name.removesuffix(".input_scale") for name in tensors if name.endswith(".input_scale")]:
        parent, _, child = name.rpartition(".")
        parts = (tensors.pop(f"{name}.{part}") for part in ("weight", "weight_scale", "input_scale"))
        setattr(model.get_submodule(parent), child, Fp8Linear(*parts))
    kv_scales = [
        tuple(tensors.pop(f"model.layers.{number}.self_attn.{short}_proj.{short}_scale") for short in ("k", "v"))
        for number in range(config.num_hidden_layers)
    ]
    model.load_state_dict(tensors, strict=True)
    return Runner(model, kv_scales)


def compared(source: Runner, converted: Runner, pieces: list[Tensor]) -> dict[str, float]:
    """Return the figures of the quality report, and those of greedy answers."""
    rows = [_rows(source.logits(piece[None])[0], converted.logits(piece[None])[0], piece) for piece in pieces]
    cosine, same, divergence = (torch.cat(one) for one in list(zip(*rows, strict=True))[:3])
    loss, other = (torch.cat(one).mean().exp() for one in list(zip(*rows, strict=True))[3:])
    return {
        "tokens": len(cosine),
        "logit_cosine": float(cosine.mean()),
        "lowest_cosine": float(cosine.min()),
        "top1_agreement": float(same.float().mean()),
        "kl_mean": float(divergence.mean()),
        "perplexity_source": float(loss),
        "perplexity_converted": float(other),
    } | _greedy(source, converted, pieces)


def _rows(a: Tensor, b: Tensor, piece: Tensor) -> tuple[Tensor, ...]:
    log_a, log_b = a.double().log_softmax(-1), b.double().log_softmax(-1)
    following = piece[1:, None]
    return (
        nn.functional.cosine_similarity(a.double(), b.double(), dim=-1),
        a.argmax(-1) == b.argmax(-1),
        (log_a.exp() * (log_a - log_b)).sum(-1),
        -log_a[:-1].gather(1, following),
        -log_b[:-1].gather(1, following),
    )


def _greedy(source: Runner, converted: Runner, pieces: list[Tensor]) -> dict[str, float]:
    text = torch.cat(pieces)
    each = min(_PROMPT_TOKENS, len(text) // _PROMPTS)
    prompts = text[: _PROMPTS * each].reshape(_PROMPTS, each)
    expected, found = (runner.greedy(prompts, _NEW_TOKENS) for runner in (source, converted))
    differs = expected != found
    leading = torch.where(differs.any(1), differs.int().argmax(1), _NEW_TOKENS)
    forced = converted.logits(torch.cat([prompts, expected[:, :-1]], 1))[:, each - 1 :].argmax(-1)
    return {
        "greedy_same_leading_tokens": float(leading.float().mean()),
        "greedy_whole_answers_same": float((leading == _NEW_TOKENS).float().mean()),
        "greedy_top1_on_the_source_answer": float((forced == expected).float().mean()),
    }


def main(source: str, ids: str, *checkpoints: str) -> int:
    """Compare FP8 checkpoints with their source over the pieces of a JSON file, and print the figures of each."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pieces = [torch.tensor(piece, device=device) for piece in json.loads(Path(ids).read_text())]
    plain = load_plain(Path(source), device)
    figures: Mapping[str, Any] = {
        Path(folder).name: compared(plain, load_fp8(Path(folder), device), pieces) for folder in checkpoints
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
