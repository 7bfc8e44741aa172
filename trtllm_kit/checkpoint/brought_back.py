"""What a Hugging Face folder made of rank files will hold, decided before the first byte: tensors, files, findings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trtllm_kit.checkpoint.brought_findings import Noticed, findings_of
from trtllm_kit.checkpoint.brought_formats import formats_found
from trtllm_kit.checkpoint.brought_scales import shared_scales
from trtllm_kit.checkpoint.config_files import CONFIG, COPIED
from trtllm_kit.checkpoint.given_ranks import Given, open_given, read_small
from trtllm_kit.checkpoint.header import INDEX
from trtllm_kit.checkpoint.identity import Identity, identify
from trtllm_kit.checkpoint.layout import SHARD_BYTES, half_format, in_files
from trtllm_kit.checkpoint.matrix import whole
from trtllm_kit.checkpoint.names import LAYER_QUANT_CONFIG, QUANT_CONFIG
from trtllm_kit.checkpoint.quant_config import hf_quant_config, inline_config, layer_quant_config
from trtllm_kit.checkpoint.rank_described import completed
from trtllm_kit.checkpoint.reader import SINGLE
from trtllm_kit.checkpoint.same_ends import Ends, ends_are_one, real_vocabulary, token_numbers, told_rope
from trtllm_kit.checkpoint.step import PLAIN, TensorStep
from trtllm_kit.checkpoint.unsharded import Joined, Unsharded
from trtllm_kit.dtypes import decode_bf16, encode_bf16
from trtllm_kit.plan.plan import QuantizationPlan, digest_of
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat
from trtllm_kit.spec.tensors import Role, layer_tensors, model_tensors

REPORT = "trtkit-migration.json"
_BYTES_VERSION = 1
"""Raised when the same rank files would give other bytes than before."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""Files of which every tokenizer has one."""
_CACHES: Mapping[str, KvFormat] = {"FP8": "fp8", "NVFP4": "nvfp4"}
"""Formats of a KV cache that the PyTorch backend has, by upstream's words."""


@dataclass(frozen=True)
class Brought:
    """A migration of which everything was checked and nothing written."""

    given: Given
    model: ModelSpec
    weights: Unsharded
    steps: tuple[TensorStep, ...]
    texts: Mapping[str, str]
    """Each configuration file by its name, the report among them."""
    tokenizer: Mapping[str, bytes]
    """Files that are copied."""
    report: dict[str, Any]
    identity: Identity

    @property
    def key(self) -> str:
        """Digest of all that the output's bytes depend on."""
        files = [step.file for step in self.steps]
        return digest_of([_BYTES_VERSION, self.identity.digest, files, dict(self.texts)])


def bring_back(folder: Path, tokenizer: Path | None, shard_bytes: int = SHARD_BYTES) -> Brought:
    """Open and check rank files, and decide what becomes of them; raises what ``given_ranks.open_given`` raises.

    ``tokenizer`` is a Hugging Face folder of the model, of which the tokenizer is taken; None for the one beside the
    rank files. Scales are read, and the two ends compared; other weights wait until they are written.
    """
    given = open_given(folder)
    beside = {name: data for name, data in given.small.items() if name in COPIED}
    copied = read_small(tokenizer, own=False) if tokenizer is not None else beside
    settled = _settle(given, tokenizer, copied)
    plain, forms = read_model_spec(settled.config, CONFIG), given.whole.formats
    kv_cache = _CACHES.get(given.described.kv_algo or "", "bf16") if forms else "bf16"
    formats = formats_found(plain, forms, kv_cache)
    weights = given.view({**_kept(given, plain), **(given.whole.cache if kv_cache != "bf16" else {})})
    routers = _routers(plain, weights)
    steps = in_files(list(_steps(plain, weights, forms, routers)), shard_bytes)
    document = settled.config | _inline(plain, formats)
    texts = {CONFIG: _json(document), **_described(plain, formats), **_index(steps)}
    model = read_model_spec(document, CONFIG, _beside(texts))
    noticed = Noticed(
        given=given,
        model=model,
        ends=settled.ends,
        has_tokenizer=not copied.keys().isdisjoint(_TOKENIZERS),
        scales=shared_scales(plain, weights, forms),
        routers=routers,
        has_cache=kv_cache != "bf16",
        rope_told=settled.rope_told,
    )
    report = _report(noticed, steps, formats)
    texts[REPORT] = _json(report)
    identity = identify(given.everything, {**given.small, **copied})
    return Brought(given, model, weights, steps, texts, copied, report, identity)


class _Settled(NamedTuple):
    """What the rank files leave open, and the whole configuration."""

    ends: Ends
    rope_told: bool
    config: dict[str, Any]


def _settle(given: Given, tokenizer: Path | None, copied: Mapping[str, bytes]) -> _Settled:
    ends, rope = real_vocabulary(given, tokenizer), told_rope(given, tokenizer)
    told = {**token_numbers(given, tokenizer, copied, ends.rows), **rope}
    tied, made = ends_are_one(given), given.made
    return _Settled(
        ends, bool(rope), completed(given.described.config, vocab=ends.rows, tied=tied, told=told, made=made)
    )


def _kept(given: Given, model: ModelSpec) -> dict[str, Joined]:
    """Return the tensors of the model and what stands beside them, the ends as long as its vocabulary."""
    facts = {name: fact for fact in model_tensors(model) for name in fact.names()}
    head = model.head_name
    kept = {name: one for name, one in given.whole.joined.items() if name != head or head in facts}
    for name in (f"{model.prefix}embed_tokens.weight", head):
        if name in kept:
            kept[name] = replace(kept[name], shape=facts[name].shape)
    return kept


def _routers(model: ModelSpec, weights: Unsharded) -> dict[str, bool]:
    """Return for each router that lies in float32 whether 16 bit hold all of its numbers."""
    half = half_format(model)
    facts = (fact for number in range(len(model.layers)) for fact in layer_tensors(model, number))
    names = [fact.name for fact in facts if fact.role is Role.ROUTER and weights.tensors[fact.name].dtype == "F32"]
    if model.dtype == "float32":
        return {}
    return {name: _fits(weights.read(name), half) for name in names}


def _fits(values: Any, half: str) -> bool:
    if half == "BF16":
        return bool(np.array_equal(decode_bf16(encode_bf16(values)), values))
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float16).astype(np.float32), values))


def _steps(
    model: ModelSpec, weights: Unsharded, forms: Mapping[str, str], routers: Mapping[str, bool]
) -> Iterator[TensorStep]:
    """Yield the tensors in the order of the model, each weight with its parts behind it, then the cache's scales."""
    beside: dict[str, list[str]] = {}
    for name in weights.tensors:
        beside.setdefault(name.rpartition(".")[0], []).append(name)
    seen: set[str] = set()
    for fact in model_tensors(model):
        for name in fact.names():
            module = beside[name.rpartition(".")[0]] if name in forms else []
            group = [name, *(other for other in module if other != name and not other.endswith(_NOT_BESIDE))]
            for one in group:
                yield _step(weights, one, forms.get(name, PLAIN), routers, model)
            seen.update(group)
    yield from (_step(weights, name, PLAIN, routers, model) for name in weights.tensors if name not in seen)


_NOT_BESIDE = (".bias", ".k_scale", ".v_scale")


def _step(weights: Unsharded, name: str, form: str, routers: Mapping[str, bool], model: ModelSpec) -> TensorStep:
    stored = weights.tensors[name]
    dtype = half_format(model) if routers.get(name) else stored.dtype
    part = weights.joined[name].part
    return TensorStep(name, dtype, stored.shape, "", whole(stored), form, part, as_stored=True)


def _inline(model: ModelSpec, formats: QuantizationPlan) -> dict[str, Any]:
    section = inline_config(model, formats)
    return {} if section is None else {"quantization_config": section}


def _described(model: ModelSpec, formats: QuantizationPlan) -> dict[str, str]:
    described = {QUANT_CONFIG: hf_quant_config(model, formats), LAYER_QUANT_CONFIG: layer_quant_config(model, formats)}
    return {name: _json(document) for name, document in described.items() if document is not None}


def _beside(texts: Mapping[str, str]) -> dict[str, Any] | None:
    section: dict[str, Any] | None = json.loads(texts[QUANT_CONFIG])["quantization"] if QUANT_CONFIG in texts else None
    return section


def _index(steps: Sequence[TensorStep]) -> dict[str, str]:
    files = {step.name: step.file for step in steps}
    if set(files.values()) == {SINGLE}:
        return {}
    size = sum(step.nbytes for step in steps)
    return {INDEX: _json({"metadata": {"total_size": size}, "weight_map": dict(sorted(files.items()))})}


def _report(noticed: Noticed, steps: Sequence[TensorStep], formats: QuantizationPlan) -> dict[str, Any]:
    given, split = noticed.given, noticed.given.described.split
    return {
        "schema_version": 1,
        "from": {
            "architecture": given.described.word,
            "quant_algo": given.described.quant_algo,
            "kv_cache_quant_algo": given.described.kv_algo,
            "tensor": split.tensor,
            "pipeline": split.pipeline,
            "context": split.context,
            "expert": split.expert,
        },
        "architecture": noticed.model.architecture,
        "weights": formats.weights.value,
        "kv_cache": formats.kv_cache.value,
        "tensors": len(steps),
        "weight_bytes": sum(step.nbytes for step in steps),
        "weight_files": len({step.file for step in steps}),
        "shared_scales": noticed.scales,
        "left_out": noticed.left_out(),
        "findings": [finding.model_dump(mode="json") for finding in findings_of(noticed)],
    }


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
