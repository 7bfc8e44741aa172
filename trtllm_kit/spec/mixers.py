"""What lets a token see those before it: attention of several kinds, or a recurrent state."""

from __future__ import annotations

from typing import Literal

from trtllm_kit.frozen import Frozen


class Rope(Frozen):
    """Rotary position embedding: base, and the scaling that stretches the context.

    ``proportional`` turns the leading part of a head as the whole head would be (Gemma 4).
    """

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn", "dynamic", "longrope", "proportional"] = "default"
    factor: float = 1.0
    original_max_position: int | None = None
    """Context length the model was trained at, tokens (``llama3``, ``yarn`` and ``longrope``)."""
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float = 32.0
    """Rotations over the trained context above which a frequency is kept (``yarn``)."""
    beta_slow: float = 1.0
    """Rotations below which a frequency is stretched whole (``yarn``)."""
    truncate: bool = True
    """Whether the bounds that the betas give are rounded outwards to whole dimensions (``yarn``)."""
    magnitude: float | None = None
    """Factor on cosine and sine; None takes the kind's own rule."""
    short_factors: tuple[float, ...] = ()
    """Divisor of each frequency while the sequence is within the trained context (``longrope``)."""
    long_factors: tuple[float, ...] = ()
    """The same for longer sequences."""
    interleaved: bool = False
    """Pairs are neighbours (0, 1), (2, 3) and not the two halves of a head (Llama 4, DeepSeek)."""


class QueryTemperature(Frozen):
    """Queries grow with their position p (0-based): times ``1 + scale * ln(1 + floor((p + 1) / floor))`` (Llama 4)."""

    floor: int
    scale: float


class Latent(Frozen):
    """Multi-head latent attention (DeepSeek): keys and values are expanded from one vector a token, which is cached."""

    query_rank: int | None
    """Width the query is squeezed through; None when it is projected at once."""
    kv_rank: int
    """Width of the cached latent vector."""
    nope_dim: int
    """Part of a query or key head without position."""
    rope_dim: int
    """Part with it: one key of this width, cached beside the latent vector, serves all heads."""
    value_dim: int
    """Width of a value head."""


class Indexer(Frozen):
    """Scores earlier tokens with a small attention of its own, so that a query looks at the best of them alone."""

    heads: int
    head_dim: int
    chosen: int
    """Units a query looks at: tokens, or ``block`` of them together (MiniMax-M3)."""
    block: int = 1
    layout: Literal["deepseek", "minimax"] = "deepseek"
    """How the checkpoint names its tensors, and what the cache of its keys holds."""


class Compression(Frozen):
    """What DeepSeek-V4 has in place of latent attention: one vector a token is key and value of all heads.

    A query looks at a window of tokens, and beyond it at vectors that each stand for ``ratio`` tokens.
    """

    ratio: int
    """0 for a window alone; 4 with an indexer, whose vectors overlap; 128 without one."""
    query_rank: int
    rope_dim: int
    output_groups: int
    """Groups of heads that are squeezed to ``output_rank`` each, before all are projected back."""
    output_rank: int

    @property
    def overlap(self) -> int:
        """Spans of ``ratio`` tokens that each vector is made of."""
        return 2 if self.ratio == _OVERLAPPING else 1


_OVERLAPPING = 4
"""The ratio whose vectors are each made of two spans (DeepSeek-V4)."""


class Attention(Frozen):
    """Attention of one layer."""

    kind: Literal["full", "sliding", "chunked"]
    heads: int
    kv_heads: int
    """Heads the KV cache holds; with ``latent`` one, whose vector serves all query heads."""
    head_dim: int
    """Width of a query or key head; with ``latent`` both its parts together."""
    window: int | None = None
    """Tokens a query can look back at (``sliding``) or the chunk length (``chunked``)."""
    qkv_bias: bool = False
    out_bias: bool = False
    fused_qkv: bool = False
    """Query, key and value are one stored tensor, in this order (Phi-3)."""
    qk_norm: Literal["none", "per_head", "all_heads", "l2"] = "none"
    """Learned RMS norms over each head (Qwen3) or all together (MiniMax-M2); ``l2``: unlearned ones (Llama 4)."""
    rotary: bool = True
    """False for layers without position embedding (Llama 4's NoPE layers)."""
    rotary_dim: int | None = None
    """Leading elements of a head that are turned, where it is not the whole head."""
    rope: Rope | None = None
    """The layer's own rope, where it is not the model's (Gemma 3's sliding layers)."""
    temperature: QueryTemperature | None = None
    """Llama 4 has it on its NoPE layers only."""
    scale: float | None = None
    """Factor on the scores; None stands for one over the root of ``head_dim``."""
    softcap: float | None = None
    """Scores s become softcap x tanh(s / softcap) (Gemma 2)."""
    sinks: bool = False
    """A learned score a head joins the softmax and takes weight from the tokens (gpt-oss)."""
    latent: Latent | None = None
    """None for attention that caches keys and values of each KV head."""
    compression: Compression | None = None
    """DeepSeek-V4's own kind; its vectors have ``head_dim`` elements."""
    indexer: Indexer | None = None
    """Chooses what a query looks at (DeepSeek-V3.2); None for all tokens, or for the choice of the layer before."""
    value_dim: int | None = None
    """Width of a value head where it is not ``head_dim`` (MiMo-V2); with ``latent`` that states its own."""
    value_scale: float = 1.0
    """Factor on the values (MiMo-V2)."""
    value_norm: bool = False
    """Values have an unlearned RMS norm (Gemma 4)."""
    value_is_key: bool = False
    """Values are the keys before norm and rope, and have no projection (Gemma 4); the cache holds both."""
    gate: Literal["none", "element", "head"] = "none"
    """A learned sigmoid on the result of each element (Qwen3.5, rows of ``q_proj``) or head (Step, ``g_proj``)."""

    @property
    def value_width(self) -> int:
        """Width of a value head."""
        if self.latent is not None:
            return self.latent.value_dim
        return self.head_dim if self.value_dim is None else self.value_dim


StateType = Literal["bfloat16", "float16", "float32"]


class DeltaNet(Frozen):
    """Gated delta-net, a linear attention (Qwen3.5): a sequence's past is one matrix a value head, of fixed size."""

    kind: Literal["delta_net"] = "delta_net"
    key_heads: int
    value_heads: int
    key_dim: int
    """Width of a key head, and of a query head."""
    value_dim: int
    conv_kernel: int
    """Tokens that the convolution before the heads looks at."""
    state_type: StateType
    """Number type of the recurrent state."""

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.value_heads * self.key_dim * self.value_dim


class Mamba(Frozen):
    """A Mamba-2 mixer (Nemotron-H): a sequence's past is one matrix a head, of fixed size."""

    kind: Literal["mamba"] = "mamba"
    heads: int
    head_dim: int
    groups: int
    """Groups of heads that share their input and output vectors (B and C)."""
    state_dim: int
    """Width of the state that each element of a head has."""
    conv_kernel: int
    """Tokens that the convolution looks at."""
    conv_bias: bool = True
    bias: bool = False
    """The projections into and out of the mixer have biases."""
    state_type: StateType
    """Number type of the recurrent state."""

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: the heads, and the input and output vectors of each group."""
        return self.inner + 2 * self.groups * self.state_dim

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.inner * self.state_dim


class KimiDelta(Frozen):
    """Kimi delta attention: a delta-net whose state forgets at a rate of its own in each element of a key (Kimi-K3)."""

    kind: Literal["kimi_delta"] = "kimi_delta"
    heads: int
    head_dim: int
    """Width of a query, key or value head."""
    conv_kernel: int
    """Tokens that the convolutions of queries, keys and values look at."""
    full_gate: bool
    """The gate on the result is one projection, and not squeezed through ``head_dim`` elements."""
    state_type: StateType = "float32"
    """Number type of the recurrent state."""

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolutions: queries, keys and values."""
        return 3 * self.inner

    @property
    def state_elements(self) -> int:
        """Elements of the recurrent state."""
        return self.inner * self.head_dim
