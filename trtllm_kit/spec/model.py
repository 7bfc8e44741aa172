"""The model spec: facts of a model that ``config.json`` states, never guessed.

A model is a tuple of layers; a layer mixes tokens (attention, or a recurrent state) and has a feed-forward part; a
hybrid's layers may lack one of the two. ``spec.tensors`` names the weights that follow from it.
"""

from __future__ import annotations

from typing import Literal, get_args

from trtllm_kit.errors import InternalError
from trtllm_kit.frozen import Frozen
from trtllm_kit.spec.mixers import (
    Attention,
    Compression,
    DeltaNet,
    Indexer,
    KimiDelta,
    Latent,
    Mamba,
    QueryTemperature,
    Rope,
    StateType,
)
from trtllm_kit.spec.profile_formats import KvFormat, PartFormat, WeightFormat

__all__ = [
    "Attention",
    "Compression",
    "ConvertedFamily",
    "DeltaNet",
    "Dense",
    "ExpertLayout",
    "Experts",
    "Family",
    "FeedForward",
    "Indexer",
    "KimiDelta",
    "Latent",
    "Layer",
    "Mamba",
    "Mixer",
    "ModelSpec",
    "PlannedFamily",
    "QueryTemperature",
    "Rope",
    "Routing",
    "StateType",
    "StoredFormats",
]


class Dense(Frozen):
    """A feed-forward block: gate and up, then down."""

    kind: Literal["dense"] = "dense"
    intermediate: int
    bias: bool = False
    gated: bool = True
    """False for a block without a gate: up, activation, down (Nemotron-H)."""
    fused_gate_up: bool = False
    """Gate and up are one stored tensor, in this order (Phi-3)."""


class Routing(Frozen):
    """How a router's logits become the weights of the chosen experts."""

    scoring: Literal["softmax", "sigmoid", "sqrt_softplus"] = "softmax"
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
    table: int = 0
    """Words whose experts a stored table names, in place of the router's choice (DeepSeek-V4); 0 without one."""


ExpertLayout = Literal[
    "mixtral",
    "qwen",
    "qwen3_vl",
    "qwen3_5",
    "llama4",
    "deepseek",
    "gpt_oss",
    "gemma4",
    "nemotron_h",
    "minimax_m2",
    "minimax_m3",
    "step3",
    "deepseek_v4",
    "kimi_linear",
]


class Experts(Frozen):
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
    gated: bool = True
    """False for experts without a gate: up, activation, down (Nemotron-3)."""
    latent: int | None = None
    """Width that tokens are squeezed to before the routed experts and expanded from behind them (Nemotron-3)."""
    shared_gated: bool = False
    """A learned sigmoid on the result of the shared expert (Qwen3.5)."""

    @property
    def fused(self) -> bool:
        """Whether the checkpoint has the projections of all experts in one tensor."""
        return self.layout in ("llama4", "gpt_oss", "gemma4", "qwen3_vl", "qwen3_5")


Mixer = Attention | DeltaNet | Mamba | KimiDelta
FeedForward = Dense | Experts


class Layer(Frozen):
    """One decoder layer."""

    mixer: Mixer | None
    """What lets tokens see those before them; None for a layer that is a feed-forward block alone."""
    feed_forward: FeedForward | None
    """None for a layer that is a mixer alone (Nemotron-H)."""
    post_norms: bool = False
    """Both parts have a norm behind them too, before they are added to the hidden state (Gemma)."""
    scaled: bool = False
    """A stored factor on the layer's result (Gemma 4)."""

    @property
    def attention(self) -> Attention:
        """The layer's attention; raises ``InternalError`` where it has none, which the caller has to ask first."""
        if isinstance(self.mixer, Attention):
            return self.mixer
        raise _lacking("attention", f"its mixer is {'none' if self.mixer is None else self.mixer.kind}")

    @property
    def block(self) -> FeedForward:
        """The layer's feed-forward block; raises ``InternalError`` where it has none, which the caller has to ask."""
        if self.feed_forward is not None:
            return self.feed_forward
        raise _lacking("feed-forward block", "it is a mixer alone")


def _lacking(part: str, why: str) -> InternalError:
    return InternalError(f"a layer was asked for its {part}", why=why, hint="report this with the command and --debug")


class StoredFormats(Frozen):
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
    layers: tuple[tuple[str, PartFormat], ...] = ()
    """Module name patterns with their formats, for weights ``mixed`` alone; the first that names a layer holds."""
    group_size: int | None = None
    """Input elements that share a scale; None where no format groups them."""


ConvertedFamily = Literal[
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "llama4",
    "gemma2", "gemma3", "phi3", "deepseek_v3", "gpt_oss",
]  # fmt: skip
"""Families that are planned, converted and run by the reference runtime."""
PlannedFamily = Literal[
    "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "nemotron_h", "nemotron_nas", "gemma4", "mimo", "mimo_v2",
    "minimax_m2", "step3", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "kimi_linear", "minimax_m3",
]  # fmt: skip
"""Families that are planned alone: their checkpoints are served as they are."""
Family = ConvertedFamily | PlannedFamily


class ModelSpec(Frozen):
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
    activation: Literal["silu", "gelu", "gelu_tanh", "clipped_swiglu", "relu2", "situ"] = "silu"
    activation_limit: float | None = None
    """Bound of gate and up before the activation (``clipped_swiglu``, gpt-oss)."""
    streams: int = 1
    """Hidden states that run side by side, mixed before and behind each part (DeepSeek-V4's hyper-connections)."""
    residual_block: int | None = None
    """Layers whose sum later layers can attend to (Kimi-K3's attention residuals)."""
    embedding_scale: float = 1.0
    """Factor on the embeddings (Gemma)."""
    unit_offset_norms: bool = False
    """Norm weights are stored less one (Gemma)."""
    logit_softcap: float | None = None
    """Logits l become softcap x tanh(l / softcap) (Gemma 2)."""
    prediction_layers: int = 0
    """Layers stored behind the last one that predict further tokens (MTP); they draft, and are no part of the model."""
    prediction_pattern: tuple[Layer, ...] = ()
    """The layers of one prediction, where it is not a single one like the last of the model (Nemotron-3)."""
    prefix: str = "model."
    """What decoder tensor names begin with; Llama 4's text part has ``language_model.model.``."""
    head_name: str = "lm_head.weight"
    bos_token: int | None = None
    eos_tokens: tuple[int, ...] = ()
    stored: StoredFormats | None = None
    """How the weights are stored; None for plain ones."""

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attentions of the layers that have one, in order."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention))

    @property
    def prediction_step(self) -> tuple[Layer, ...]:
        """The layers that predict one further token."""
        return self.prediction_pattern or self.layers[-1:]

    @property
    def converted(self) -> bool:
        """Whether the kit converts and runs the family, and does not only plan it."""
        return self.family in get_args(ConvertedFamily)

    @property
    def quantized_as(self) -> str | None:
        """``quant_method`` of an already quantised checkpoint, or None for plain weights."""
        return None if self.stored is None else self.stored.method
