"""The groups that errors are told by, and what each of them is held to."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.points import Point

UNKNOWN = "runs of which too little is known"


@dataclass(frozen=True, slots=True)
class Target:
    """One line of what accuracy is asked for: groups taken together, and the most that errors may be."""

    name: str
    groups: tuple[str, ...]
    tpot: float | None = None
    ttft: float | None = None


def group_of(point: Point) -> str:
    """Return the group of a measured row."""
    row = point.row
    if row.version.startswith("1.3.0") or (point.run.certainty == "assumed" and row.model == "deepseek-r1"):
        return UNKNOWN
    if row.system == "gb200" or (row.model == "qwen3-32b" and row.precision != "fp8"):
        return UNKNOWN
    if row.model == "llama-3.1-70b":
        shape = "1k/1k" if row.prompt == row.answer else "1k/8k and 8k/1k"
        return f"Llama 70B {row.precision.upper()}, {_CARDS[row.system]}, {shape}"
    drafting = " with MTP" if point.run.draft_tokens else ""
    return f"{_MODELS[row.model]} {row.precision.upper()}{drafting}, {_CARDS[row.system]}"


_CARDS = {"h200_sxm": "H200", "h100_sxm": "H100", "b200_sxm": "B200", "gb200": "GB200"}
_MODELS = {
    "llama-3.1-8b": "Llama 8B",
    "qwen3-32b": "Qwen3 32B",
    "qwen3-235b-a22b": "Qwen3 235B",
    "deepseek-r1": "DeepSeek",
    "gpt-oss-120b": "gpt-oss 120B",
}
_DENSE = ("Llama 70B FP8, H200, 1k/8k and 8k/1k", "Llama 70B FP8, B200, 1k/8k and 8k/1k")
_DENSE_SHORT = ("Llama 70B FP8, H200, 1k/1k", "Llama 70B FP8, B200, 1k/1k")
_SMALLER = ("Qwen3 32B FP8, H100", "Llama 8B BF16, H100")
_QWEN = ("Qwen3 235B FP8, H100",)
_DEEPSEEK = ("DeepSeek FP8, H200", "DeepSeek FP8, B200", "DeepSeek FP4, B200")
_GPT_OSS = ("gpt-oss 120B FP4, H200", "gpt-oss 120B FP4, B200")

TARGETS = (
    Target("dense FP8, 70B on H200 and B200", _DENSE, tpot=0.08, ttft=0.20),
    Target("the same, 1k/1k, apart", _DENSE_SHORT, tpot=0.08),
    Target("dense, 32B and 8B on H100", _SMALLER, tpot=0.12, ttft=0.30),
    Target("of these, 32B", _SMALLER[:1], tpot=0.12, ttft=0.30),
    Target("of these, 8B", _SMALLER[1:], tpot=0.12, ttft=0.30),
    Target("experts, Qwen3 235B", _QWEN, tpot=0.20, ttft=0.35),
    Target("experts, DeepSeek", _DEEPSEEK, tpot=0.20, ttft=0.35),
    Target("experts, gpt-oss", _GPT_OSS, tpot=0.20, ttft=0.35),
    Target("experts, all of them", _QWEN + _DEEPSEEK + _GPT_OSS, tpot=0.20, ttft=0.35),
)
