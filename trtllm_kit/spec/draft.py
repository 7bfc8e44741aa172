"""The draft model of speculative decoding: what its ``config.json`` says, as far as a plan needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trtllm_kit.frozen import Frozen


class DraftFacts(Frozen):
    """Facts of a draft model, by the names of ``config.json``; every number is 1 or more."""

    architectures: tuple[str, ...] = ()
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int
    draft_vocab_size: int | None = None
    """Words an EAGLE-3 head can draft; a table in its weights maps them to the target's."""
    target_hidden_size: int | None = None
    """Width of the hidden states an EAGLE-3 head reads, where it is not its own."""
    tokenizer_sha256: str | None = None
    """SHA-256 of ``tokenizer.json`` beside it; None without one."""

    mapping: Mapping[str, Any] = MappingProxyType({})
    """How ranks share it, in a checkpoint for ``trtllm-build``; empty in any other."""
    quantization: Mapping[str, Any] = MappingProxyType({})
    """Its number formats, in such a checkpoint."""
    dtype: str | None = None
    """Type of what is in 16 bit, in such a checkpoint."""

    def size(self, name: str) -> int:
        """Return a size of the mapping; what is not stated is 1."""
        value = self.mapping.get(name)
        return value if type(value) is int and value > 0 else 1

    def stored(self, key: str) -> str | None:
        """Return a word of its number formats; None for 16 bit."""
        value = self.quantization.get(key)
        return value if isinstance(value, str) else None

    @property
    def ranks(self) -> int | None:
        """Ranks of a checkpoint for ``trtllm-build``; None for any other."""
        ranks = self.mapping.get("world_size")
        return ranks if isinstance(ranks, int) and ranks > 0 else None

    @property
    def architecture(self) -> str:
        """The first architecture it names; empty when it names none."""
        return self.architectures[0] if self.architectures else ""

    @property
    def kv_heads(self) -> int:
        """Key and value heads; as many as query heads when the file does not say."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Elements of one head."""
        return self.head_dim or max(1, self.hidden_size // self.num_attention_heads)


def draft_facts(config: Mapping[str, Any], tokenizer_sha256: str | None = None) -> DraftFacts | str:
    """Return the facts of a draft's ``config.json``, or which of its keys are missing or no such numbers."""
    stated = {name: config[name] for name in DraftFacts.field_names if config.get(name) is not None}
    missing, _ = DraftFacts.odd_names(stated)
    wrong = {name for name, value in stated.items() if not _GOOD.get(name, _counts)(value)}
    unclear = [name for name in DraftFacts.field_names if name in wrong or name in missing]
    if unclear:
        return f"its config.json does not say {', '.join(unclear)} in a way that can be read"
    facts = DraftFacts(**stated | {"architectures": tuple(stated.get("architectures", ()))})
    of_ranks = _of_ranks(config) if facts.mapping else {}
    return facts.model_copy(update={"tokenizer_sha256": tokenizer_sha256, **of_ranks})


def _of_ranks(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint for ``trtllm-build`` says beside its sizes, as far as it can be read."""
    architecture, dtype, formats = (config.get(name) for name in ("architecture", "dtype", "quantization"))
    return {
        "architectures": (architecture,) if isinstance(architecture, str) else (),
        "dtype": dtype if isinstance(dtype, str) else None,
        "quantization": formats if isinstance(formats, dict) else {},
    }


def _counts(value: object) -> bool:
    return type(value) is int and value > 0


_GOOD: Mapping[str, Callable[[object], bool]] = {
    "architectures": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "mapping": lambda value: isinstance(value, dict),
    "quantization": lambda _: True,
    "dtype": lambda _: True,
    "tokenizer_sha256": lambda _: True,  # of the file beside it, whatever a key of that name says
}
