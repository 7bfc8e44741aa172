"""Sections of a deploy profile that tune the engine: speculation, and the settings of the PyTorch backend."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from trtllm_kit.spec.system_text import REFUSED, PathText

Positive = Annotated[int, Field(ge=1)]
Auto = Literal["auto"]
SpeculationKind = Literal[
    "eagle3", "mtp", "ngram", "draft_target", "pard", "sa", "auto", "medusa", "eagle", "redrafter", "lookahead"
]
AllReduce = Literal[
    "auto", "nccl", "ub", "min_latency", "one_shot", "two_shot", "low_precision", "mnnvl", "nccl_symmetric"
]
MoeBackend = Literal[
    "auto", "cutlass", "cutedsl", "cutedsl_fc12", "wideep", "trtllm", "deepgemm", "densegemm", "vanilla", "triton",
    "marlin", "megamoe_deepgemm", "megamoe_cutedsl",
]  # fmt: skip

NEEDED: dict[str, tuple[str, ...]] = {"draft_checkpoint": ("eagle3", "draft_target", "pard")}
"""Keys of ``speculation`` that some kinds cannot do without; to the other kinds they mean nothing."""
GATED = ("eagle3", "mtp", "ngram", "draft_target", "pard", "sa")
"""Kinds that can be switched off when too few drafts are accepted."""
POSSIBLE: dict[str, tuple[str, ...]] = {
    "capture_layers": ("eagle3",),
    "max_ngram": ("ngram", "sa"),
    "acceptance_threshold": GATED,
    "acceptance_window": GATED,
}
"""Keys that mean something to some kinds only, which can do without."""


class Strict(BaseModel):
    """Base of every section: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Speculation(Strict):
    """Draft tokens that a cheaper predictor proposes and the model checks, several in one step."""

    kind: SpeculationKind = Field(
        description="Who drafts: eagle3 (a small head trained for the model), mtp (the model's own prediction layers), "
        "ngram (text that came before), draft_target (a smaller model of the same vocabulary), pard (a draft model "
        "that proposes all tokens in one pass), sa (the longest match with text that came before, found on the GPU), "
        "auto (the release's own choice, which is ngram); with trtllm-build alone "
        "lookahead (the model itself, several places at once), and medusa, eagle and redrafter (heads that the given "
        "checkpoint holds)."
    )
    draft_tokens: Positive = Field(
        description="Tokens drafted a step; kind auto chooses for itself. Raising it costs draft time and KV cache, "
        "and late tokens are rarely kept."
    )
    draft_checkpoint: PathText | None = Field(
        None,
        validate_default=True,
        description="Draft model of eagle3, draft_target and pard: a folder where the server sees it, or a hub id. "
        "It costs its weights and a KV cache of its own.",
    )
    capture_layers: tuple[Annotated[int, Field(ge=-1)], ...] | None = Field(
        None,
        description="Layers of the model whose hidden states eagle3 reads (-1: the last); absent takes what the draft "
        "was trained with. It costs quality of the drafts when it is not what the draft was trained with.",
    )
    acceptance_threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="Draft gate: accepted share of the drafted tokens below which speculation is switched off for "
        "good. Raising it costs speed where drafts still paid.",
    )
    acceptance_window: Positive | None = Field(
        None,
        validate_default=True,
        description="Draft gate: samples (finished requests up to 1.2, steps in main) that the share is a mean of. "
        "Raising it costs time until bad drafts are switched off.",
    )
    max_ngram: Positive | Auto = Field(
        "auto",
        description="Longest text, tokens, that ngram looks up in what came before; the length of the matches of sa, "
        "which auto leaves at the longest there is. Raising it costs drafts: long matches are rarer.",
    )

    @field_validator("draft_checkpoint", "capture_layers", "acceptance_threshold", "acceptance_window", "max_ngram")
    @classmethod
    def _suits_the_kind(cls, value: Any, info: ValidationInfo) -> Any:
        kind, key = info.data.get("kind"), str(info.field_name)
        text = "" if kind is None else _refused(kind, key, value)
        if not text and key == "acceptance_window" and "acceptance_threshold" in info.data:
            text = _half_a_gate(info.data["acceptance_threshold"], value)
        if text:
            raise PydanticCustomError(REFUSED, "{text}", {"text": text})
        return value


def _refused(kind: str, key: str, value: object) -> str:
    """Say why a key cannot stand beside that kind, or must; empty when it may be as it is."""
    absent = value is None or value == "auto"
    if absent:
        needed = kind in NEEDED.get(key, ())
        return f"missing; kind {kind} needs the folder or hub id of its draft model" if needed else ""
    kinds = NEEDED.get(key) or POSSIBLE.get(key)
    if kinds is None or kind in kinds:
        return ""
    return f"has no meaning with kind {kind}, only with {_listed(kinds)}; leave it out"


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _half_a_gate(threshold: float | None, window: int | None) -> str:
    """Say what is missing of a draft gate; empty when both its keys are there, or none."""
    if threshold is not None and window is None:
        return "missing; acceptance_threshold needs the number of samples that its mean is taken of"
    return "has no meaning without acceptance_threshold; leave it out" if window and threshold is None else ""


class Engine(Strict):
    """Settings of the PyTorch backend; ``auto`` lets the plan, or the release, choose."""

    overlap_scheduler: bool | Auto = Field(
        "auto",
        description="Prepare the next step while the GPU runs this one. It costs one step of delay until a finished "
        "request leaves; auto switches it off where the release cannot combine it.",
    )
    allreduce_strategy: AllReduce = Field(
        "auto",
        description="How tensor ranks sum their parts: nccl_symmetric and mnnvl use NVLink multicast (NVLS), one_shot "
        "is quick for small messages, low_precision costs accuracy.",
    )
    cuda_graphs: bool | Auto = Field(
        "auto",
        description="Replay recorded decode steps, which saves launch time. It costs up to 200 MB a recorded batch "
        "size and a longer start; auto switches it off where the release cannot combine it.",
    )
    cuda_graph_max_batch_size: Positive | Auto = Field(
        "auto",
        description="Largest recorded batch; auto is limits.max_batch_size. Raising it costs memory and start time.",
    )
    cuda_graph_padding: bool = Field(
        True,
        description="Round a batch up to the next recorded one. It costs the work of the padding; without it other "
        "batch sizes run unrecorded.",
    )
    autotuner: bool = Field(
        True, description="Measure kernel variants at start and keep the quickest. It costs start time."
    )
    moe_backend: MoeBackend = Field(
        "auto",
        description="Kernels of the experts; auto writes none and the release takes its own. Another one costs a "
        "failed start where GPU, format or release do not suit it.",
    )
    min_latency: bool = Field(
        False,
        description="Llama 4 kernels for very small batches. It costs throughput at larger ones.",
    )
    stream_interval: Positive = Field(
        1, description="Steps between two pieces of a streamed answer. Raising it costs smoothness; it saves host time."
    )
    attention_dp_balance: bool = Field(
        False,
        description="With parallelism.attention_dp: prompts wait until every rank has one to start, so that no rank "
        "idles while another reads. It costs time to the first token; it saves time of every later one.",
    )
    attention_dp_timeout_iters: Positive | None = Field(
        None,
        description="Steps after which prompts start although some rank has none; absent leaves it to the release. "
        "Raising it costs time to the first token.",
    )
    attention_dp_wait_iters: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Steps that prompts wait for more when every rank has one; absent leaves it to the release. "
        "Raising it costs time to the first token.",
    )
    expert_slots: Positive | None = Field(
        None,
        description="Places for experts over all expert ranks (EPLB): more than the model has experts keeps copies of "
        "busy ones. Raising it costs the weights of every copy.",
    )
