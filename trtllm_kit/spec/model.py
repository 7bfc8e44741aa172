"""The model spec: facts of a model that ``config.json`` states, never guessed.

A model is a tuple of layers; a layer is an attention and a feed-forward part. ``spec.tensors`` names the weights
that follow from it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from trtllm_kit.spec.profile_formats import KvFormat, WeightFormat


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rope(_Frozen):
    """Rotary position embedding: base, and the scaling that stretches the context."""

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn", "dynamic", "longrope"] = "default"
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


class QueryTemperature(_Frozen):
    """Queries grow with their position p (0-based): times ``1 + scale * ln(1 + floor((p + 1) / floor))`` (Llama 4)."""

    floor: int
    scale: float


class Latent(_Frozen):
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


class Attention(_Frozen):
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
    qk_norm: Literal["none", "per_head", "l2"] = "none"
    """``per_head``: a learned RMS norm over head_dim (Qwen3); ``l2``: an unlearned one (Llama 4)."""
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


class Dense(_Frozen):
    """A gated feed-forward block."""

    kind: Literal["dense"] = "dense"
    intermediate: int
    bias: bool = False
    fused_gate_up: bool = False
    """Gate and up are one stored tensor, in this order (Phi-3)."""


class Routing(_Frozen):
    """How a router's logits become the weights of the chosen experts."""

    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalise: bool = True
    """The weights of the chosen experts are scaled to sum to one."""
    bias: bool = False
    """The router is a linear layer with bias (gpt-oss)."""
    choice_bias: bool = False
    """A learned bias joins the scores for the choice, not for the weights (DeepSeek-V3)."""
    groups: int = 1
    """The experts stand in as many groups, of which only some are looked at."""
    groups_per_token: int = 1
    scale: float = 1.0
    """Factor on the weights."""


ExpertLayout = Literal["mixtral", "qwen", "llama4", "deepseek", "gpt_oss"]


class Experts(_Frozen):
    """A mixture-of-experts block."""

    kind: Literal["experts"] = "experts"
    experts: int
    per_token: int
    """Routed experts each token visits."""
    intermediate: int
    shared_intermediate: int = 0
    """Width of the expert every token visits; 0 when there is none."""
    layout: ExpertLayout
    """How the checkpoint names and fuses its expert tensors."""
    routing: Routing = Routing()
    bias: bool = False
    """The experts' projections have biases (gpt-oss)."""

    @property
    def fused(self) -> bool:
        """Whether the checkpoint has the projections of all experts in one tensor."""
        return self.layout in ("llama4", "gpt_oss")


class Layer(_Frozen):
    """One decoder layer."""

    attention: Attention
    feed_forward: Dense | Experts
    post_norms: bool = False
    """Both parts have a norm behind them too, before they are added to the hidden state (Gemma)."""


class StoredFormats(_Frozen):
    """How a checkpoint that comes quantised is stored, as its configuration files say."""

    method: str
    """``quant_method``; modelopt where ``hf_quant_config.json`` alone says so."""
    scheme: str = ""
    """What the method calls the format, in one or a few words: ``NVFP4``, ``FP8_BLOCK_SCALES``, ``float8 channel``."""
    weights: WeightFormat | None = None
    """The profile's word for it; None for what can be neither passed through nor converted."""
    kv_cache: KvFormat = "bf16"
    """Format of the KV cache whose scales come with it."""
    exclude: tuple[str, ...] = ()
    """Module name patterns of the linear layers that are in 16 bit; those of the file that name none are left out."""


Family = Literal[
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "llama4",
    "gemma2", "gemma3", "phi3", "deepseek_v3", "gpt_oss",
]  # fmt: skip


class ModelSpec(_Frozen):
    """Facts of one model."""

    family: Family
    architecture: str
    """The name in ``config.json``'s ``architectures``."""
    hidden: int
    layers: tuple[Layer, ...]
    vocab: int
    max_position: int
    """Longest context the model claims, tokens."""
    norm_epsilon: float
    tied_embeddings: bool
    """The output head shares the embedding's weights, so no head tensor is stored."""
    rope: Rope
    dtype: Literal["bfloat16", "float16", "float32"]
    activation: Literal["silu", "gelu", "gelu_tanh", "clipped_swiglu"] = "silu"
    activation_limit: float | None = None
    """Bound of gate and up before the activation (``clipped_swiglu``, gpt-oss)."""
    embedding_scale: float = 1.0
    """Factor on the embeddings (Gemma)."""
    unit_offset_norms: bool = False
    """Norm weights are stored less one (Gemma)."""
    logit_softcap: float | None = None
    """Logits l become softcap x tanh(l / softcap) (Gemma 2)."""
    prediction_layers: int = 0
    """Layers stored behind the last one that predict further tokens (MTP); they draft, and are no part of the model."""
    prefix: str = "model."
    """What decoder tensor names begin with; Llama 4's text part has ``language_model.model.``."""
    head_name: str = "lm_head.weight"
    bos_token: int | None = None
    eos_tokens: tuple[int, ...] = ()
    stored: StoredFormats | None = None
    """How the weights are stored; None for plain ones."""

    @property
    def quantized_as(self) -> str | None:
        """``quant_method`` of an already quantised checkpoint, or None for plain weights."""
        return None if self.stored is None else self.stored.method
