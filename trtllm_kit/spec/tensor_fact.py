"""One weight tensor as a fact: name, shape, and what it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from trtllm_kit.frozen import Frozen

EXPERT = "{expert}"
"""Stands for the expert number in the name of a tensor that every expert has."""
CHOICE_BIAS = "e_score_correction_bias"
"""What the name of a router's choice bias ends in (DeepSeek)."""


class Role(StrEnum):
    """What a tensor is for; quantisation and sharding are decided by role."""

    EMBEDDING = "embedding"
    HEAD = "lm_head"
    NORM = "norm"
    QUERY = "q_proj"
    KEY = "k_proj"
    VALUE = "v_proj"
    QUERY_DOWN = "q_a_proj"
    """Squeezes the hidden state to the query's latent vector (DeepSeek)."""
    QUERY_UP = "q_b_proj"
    """Expands it to the query heads."""
    LATENT_DOWN = "kv_a_proj_with_mqa"
    """Squeezes the hidden state to what the KV cache holds: the latent vector and the key that has a position."""
    LATENT_UP = "kv_b_proj"
    """Expands the latent vector to the keys and values of all heads."""
    SINK = "sinks"
    """One score a head that takes attention from the tokens (gpt-oss)."""
    QKV = "qkv_proj"
    """Query, key and value in one tensor (Phi-3)."""
    ATTENTION_OUT = "o_proj"
    GATE = "gate_proj"
    UP = "up_proj"
    GATE_UP = "gate_up_proj"
    """Gate and up in one tensor (Phi-3)."""
    DOWN = "down_proj"
    SHARED_GATE = "shared_gate"
    """Of the expert that every token visits, as the next two."""
    SHARED_UP = "shared_up"
    SHARED_DOWN = "shared_down"
    ROUTER = "router"
    CHOICE_BIAS = "choice_bias"
    """Joins the router's scores for the choice of experts (DeepSeek)."""
    EXPERT_GATE_UP = "expert_gate_up"
    """Fused gate and up projections of all experts in one tensor (Llama 4, gpt-oss)."""
    EXPERT_DOWN = "expert_down"
    """Down projections of all experts in one tensor (Llama 4, gpt-oss)."""
    ATTENTION_GATE = "g_proj"
    """A sigmoid for each head on the attention's result (Step)."""
    MIXER_IN = "in_proj"
    """Everything a Mamba mixer, or the queries, keys and values a delta-net, makes of the hidden state."""
    MIXER_GATE = "in_proj_z"
    """The gate on a delta-net's result."""
    MIXER_RATES = "in_proj_ba"
    """How much each head of a delta-net forgets and takes in."""
    CONVOLUTION = "conv1d"
    """Runs over the last few tokens, channel by channel."""
    STATE = "state"
    """One number a head that drives a recurrent state: its decay, its step, its way past."""
    MIXER_OUT = "out_proj"
    SHARED_SWITCH = "shared_expert_gate"
    """A sigmoid on the result of the shared expert (Qwen3.5)."""
    EXPERT_LATENT_DOWN = "fc1_latent_proj"
    """Squeezes a token before the routed experts (Nemotron-3)."""
    EXPERT_LATENT_UP = "fc2_latent_proj"
    """Expands their result."""
    PER_EXPERT = "per_expert_scale"
    """One factor an expert on what the router gives it (Gemma 4)."""
    LAYER_SCALE = "layer_scalar"
    """One factor on the layer's result (Gemma 4)."""
    INDEX_QUERY = "index_q"
    """Of the indexer that chooses what sparse attention looks at, as the next two."""
    INDEX_KEY = "index_k"
    INDEX_WEIGHTS = "weights_proj"
    """How much each head of an indexer counts (DeepSeek-V3.2); 16-bit in every published file."""
    COMPRESSOR = "compressor"
    """Makes one vector of several tokens (DeepSeek-V4); never quantised."""
    OUTPUT_DOWN = "wo_a"
    """Squeezes groups of heads before they are projected back (DeepSeek-V4)."""
    DECAY_DOWN = "f_a_proj"
    """With the next one, how fast each element of a state forgets (Kimi-K3)."""
    DECAY_UP = "f_b_proj"
    GATE_DOWN = "g_a_proj"
    """Squeezes the hidden state before the gate on a delta attention's result (Kimi Linear)."""
    RESIDUAL = "residual"
    """Mixes a part's result into several hidden states (DeepSeek-V4), or into earlier layers' sums (Kimi-K3)."""
    WORD_EXPERTS = "tid2eid"
    """Names the experts of each word of the vocabulary, in place of a router's choice (DeepSeek-V4)."""
    PREDICTION = "prediction"
    """Joins the hidden state and the next token's embedding in front of a prediction layer (DeepSeek)."""


NOT_LINEAR = frozenset({
    Role.ROUTER, Role.CONVOLUTION, Role.STATE, Role.INDEX_WEIGHTS, Role.COMPRESSOR, Role.RESIDUAL, Role.WORD_EXPERTS,
})  # fmt: skip
"""Tensors of several axes that no published checkpoint has quantised."""


class TensorFact(Frozen):
    """One weight tensor of the Hugging Face layout, or ``copies`` alike ones (one for each expert)."""

    name: str
    """With ``EXPERT`` where the expert number stands."""
    shape: tuple[int, ...]
    """As stored: (out features, in features) for linear layers."""
    role: Role
    layer: int | None
    copies: int = 1
    inputs_last: bool = False
    """Of experts in one tensor: the input features are the last axis, not the middle one (Qwen3.5, Gemma 4)."""

    @property
    def is_bias(self) -> bool:
        """Whether it is added to a product or to a router's scores, and no matrix or norm."""
        return self.name.endswith("bias")

    @property
    def elements(self) -> int:
        """Elements of all copies together."""
        count = self.copies
        for size in self.shape:
            count *= size
        return count

    def names(self) -> Iterator[str]:
        """Yield the tensor name of each copy."""
        if self.copies == 1 and EXPERT not in self.name:
            yield self.name
            return
        for expert in range(self.copies):
            yield self.name.replace(EXPERT, str(expert))


FactOf = Callable[..., TensorFact]
"""Makes a fact of one layer from the name's end, the role and the shape."""
