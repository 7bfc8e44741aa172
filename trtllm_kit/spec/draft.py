"""The draft model of speculative decoding: what its ``config.json`` says, as far as a plan needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class DraftFacts(BaseModel):
    """Facts of a draft model, by the names of ``config.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    architectures: tuple[str, ...] = ()
    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int | None = Field(None, gt=0)
    head_dim: int | None = Field(None, gt=0)
    vocab_size: int = Field(gt=0)
    draft_vocab_size: int | None = Field(None, gt=0)
    """Words an EAGLE-3 head can draft; a table in its weights maps them to the target's."""
    target_hidden_size: int | None = Field(None, gt=0)
    """Width of the hidden states an EAGLE-3 head reads, where it is not its own."""
    tokenizer_sha256: str | None = None
    """SHA-256 of ``tokenizer.json`` beside it; None without one."""

    mapping: Mapping[str, Any] = {}
    """How ranks share it, in a checkpoint for ``trtllm-build``; empty in any other."""

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
    document = {**config, "tokenizer_sha256": tokenizer_sha256}
    try:
        return DraftFacts.model_validate({name: value for name, value in document.items() if value is not None})
    except ValidationError as error:
        keys = dict.fromkeys(str(one["loc"][0]) for one in error.errors(include_url=False, include_input=False))
        return f"its config.json does not say {', '.join(keys)} in a way that can be read"
