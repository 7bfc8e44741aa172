"""What whoever brings rank files back should know: what was lost, left out or kept as it was, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtllm_kit.checkpoint.given_ranks import Given
from trtllm_kit.checkpoint.same_ends import Ends
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION

_SHOWN = 3


@dataclass(frozen=True)
class Noticed:
    """What was seen while the migration was decided."""

    given: Given
    model: ModelSpec
    ends: Ends
    has_tokenizer: bool
    scales: list[dict[str, Any]]
    routers: Mapping[str, bool]
    """Whether 16 bit hold all numbers of a float32 router."""
    has_cache: bool
    """Scales of the KV cache are brought back."""
    rope_told: bool
    """The rope is that of the configuration beside the tokenizer."""

    def left_out(self) -> dict[str, str]:
        """Return the tensors of the ranks that are not in the output, with the reason."""
        reasons = dict.fromkeys(self.given.heads, "a drafting head, which the unified layout has no place for")
        for name in self.given.remade:
            merged = name.endswith(".kv_cache_scaling_factor")
            reasons[name] = "the larger of the scales of keys and values" if merged else "made anew by every loader"
        if self.given.has_head and self.model.tied_embeddings:
            reasons["lm_head.weight"] = "equal to the embedding"
        if self.given.whole.cache and not self.has_cache:
            reasons |= dict.fromkeys(self.given.whole.cache, "a scale of a KV cache that the layout does not name")
        return reasons


def findings_of(noticed: Noticed) -> Iterator[Finding]:
    """Yield the findings, in the order of their numbers."""
    yield from _scales(noticed)
    yield from _cache(noticed)
    yield from _vocabulary(noticed)
    yield from _heads(noticed)
    yield from _tokenizer(noticed)
    yield from _packed_later(noticed)
    yield from _routers(noticed)
    yield from _changed(noticed)
    yield from _decoded(noticed)
    yield from _rope(noticed)


def _scales(noticed: Noticed) -> Iterator[Finding]:
    rows = noticed.scales
    if rows:
        first = rows[0]
        value = first.get("value", first.get("largest"))
        yield _info(
            "CK5",
            "Weights that an engine fuses have one scale for all of them; those they had before are lost.",
            f"{len(rows)} groups, first {', '.join(first['modules'])}: {first['part']} {value:.6g}",
            "nothing to do: codes and scales belong together; shared_scales in trtkit-migration.json has them all",
        )


def _cache(noticed: Noticed) -> Iterator[Finding]:
    cache = noticed.given.whole.cache
    if not cache or noticed.has_cache:
        return
    view = noticed.given.everything
    values = sorted({view.number(name) for name in cache})
    algo = noticed.given.described.kv_algo
    why = (
        "the PyTorch backend has no such cache" if algo == "INT8" else "the layout names them beside quantised weights"
    )
    yield _warning(
        "CK6",
        f"Scales of the {algo} KV cache are left out: {why}.",
        f"{len(cache)} scales from {values[0]:.6g} to {values[-1]:.6g}; without them the scale is 1",
        "set quantization.kv_cache in the profile: fp8 for a cache of 8 bits, bf16 for the most exact",
    )


def _vocabulary(noticed: Noticed) -> Iterator[Finding]:
    ends = noticed.ends
    if ends.rows < ends.stated:
        yield _info(
            "CK7",
            "Rows that fill the vocabulary up were cut off again.",
            f"{ends.stated:,} rows in the ranks, {ends.rows:,} in {ends.source}; the others are zero",
            "nothing to do",
        )
    elif ends.zeros:
        yield _warning(
            "CK7",
            "The last rows of the embedding are zero: some makers fill the vocabulary up.",
            f"{ends.zeros:,} of {ends.rows:,} rows, which were kept",
            "give --tokenizer the model's own folder, whose config.json has its vocab_size",
        )
    if ends.filled:
        yield _warning(
            "CK7",
            "Rows behind the vocabulary hold numbers and were cut off: no token has them.",
            f"{ends.filled:,} rows that are not zero behind {ends.stated:,}",
            "compare vocab_size in config.json with the model's own",
        )


def _heads(noticed: Noticed) -> Iterator[Finding]:
    heads = noticed.given.heads
    if heads:
        yield _warning(
            "CK8",
            f"The heads of {noticed.given.described.word} that draft are left out.",
            f"{len(heads)} tensors: {', '.join(heads[:_SHOWN])}{' ...' * (len(heads) > _SHOWN)}",
            "draft with n-grams (speculation.kind: ngram), or with the heads' own Hugging Face checkpoint",
        )


def _tokenizer(noticed: Noticed) -> Iterator[Finding]:
    if not noticed.has_tokenizer:
        yield _warning(
            "CK9",
            "The folder has no tokenizer: rank files hold none.",
            "no tokenizer files beside them, and no --tokenizer",
            "run it again with --tokenizer FOLDER, or copy the model's tokenizer files there",
        )


def _packed_later(noticed: Noticed) -> Iterator[Finding]:
    algo = noticed.given.described.quant_algo
    if algo is not None and algo != MIXED_PRECISION and not noticed.given.whole.formats:
        yield _warning(
            "CK10",
            f"The weights lie in 16 bit and stay so: trtllm-build made {algo} of them.",
            f"quant_algo {algo}, no weight of the ranks is packed",
            "set quantization.weights in the profile to a format of that size and convert",
        )


def _routers(noticed: Noticed) -> Iterator[Finding]:
    wide = [name for name, fits in noticed.routers.items() if not fits]
    if wide:
        yield _info(
            "CK11",
            "Routers keep float32, since 16 bit would round them.",
            f"{len(wide)} of {len(noticed.routers)} routers, first {wide[0]}",
            "nothing to do",
        )


def _decoded(noticed: Noticed) -> Iterator[Finding]:
    names, step = noticed.given.whole.decoded, _HALF_STEP[noticed.model.dtype]
    if names:
        yield _warning(
            "CK13",
            "Weights that ranks share by columns come back in 16 bit: each rank has a scale of its own for a row.",
            f"{len(names)} weights, first {names[0]}; rounding moves a number by at most 1/{step}, FP8 itself by 1/16",
            "nothing to do, or migrate from a checkpoint of one tensor rank",
        )


_HALF_STEP = {"bfloat16": 256, "float16": 2048, "float32": 256}
"""Two to the bits of a mantissa and one, by the model's type."""


def _rope(noticed: Noticed) -> Iterator[Finding]:
    if noticed.given.described.states_rope:
        return
    theta = noticed.model.rope.theta
    if noticed.rope_told:
        yield _info(
            "CK14",
            "The rotary embedding is that of config.json beside the tokenizer: the ranks' own states no base.",
            f"base {theta:g} there; an engine of these ranks takes 10000",
            "nothing to do",
        )
        return
    yield _warning(
        "CK14",
        "No rotary_base is stated, and what engines then take was written.",
        f"base {theta:g}; many models have another",
        "give --tokenizer the model's own folder, whose config.json has rope_theta",
    )


def _changed(noticed: Noticed) -> Iterator[Finding]:
    """Yield what the converted model had, and no key of the ranks' configuration says."""
    made = noticed.given.made
    if made is None:
        return
    now = noticed.model.model_copy(update={"stored": made.stored, "dtype": made.dtype})
    names = [name for name in made.model_dump() if getattr(made, name) != getattr(now, name)]
    if names:
        shown = [f"{name} (was {_short(getattr(made, name))}, now {_short(getattr(now, name))})" for name in names]
        yield _warning(
            "CK12",
            "config.json describes a model that differs from the one that was converted.",
            "; ".join(shown),
            "put these keys of the model's own config.json in",
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 60 else f"{text[:56]} ..."


def _info(rule: str, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule=rule, severity=Severity.INFO, message=message, compared=compared, suggestion=suggestion)


def _warning(rule: str, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule=rule, severity=Severity.WARNING, message=message, compared=compared, suggestion=suggestion)
