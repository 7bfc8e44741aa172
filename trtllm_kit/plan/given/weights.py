"""Rules about a folder of weights, from its index, sizes and headers alone (PF4, PF9, PF10, PF12)."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import WeightFacts
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.upstream.failures import failure

if TYPE_CHECKING:
    from trtllm_kit.spec.model import ModelSpec, StoredFormats

_WHOLE = 0.98
"""Share of the index's total below which files of unread headers are spoken of."""


def weights(facts: WeightFacts, model: ModelSpec, release: str) -> Iterator[Finding]:
    """Run every rule about a folder of weights."""
    broken = list(files(facts, release))
    yield from broken
    if not any(finding.severity is Severity.ERROR for finding in broken):
        yield from head(facts, model, release)
        yield from embedding(facts, model, release)
        yield from factors(facts, model, release)


def files(facts: WeightFacts, release: str) -> Iterator[Finding]:
    """PF9: files that the index names and that are missing, are pointers, or are not as long as their headers say."""
    named = set((facts.indexed or {}).values()) or set(facts.sizes)
    broken = [*_missing(facts, named), *_pointers(facts, named, release), *_extents(facts, named)]
    yield from broken
    if not broken:
        yield from _total(facts, named)
    others = sorted(facts.sizes.keys() - named)
    if others and facts.indexed:
        yield found(
            "PF9",
            Severity.WARNING,
            "Files lie beside the model that its index does not name.",
            f"{len(others)}: {', '.join(others[:3])}",
            "remove them, or download the index of their revision",
        )


def _missing(facts: WeightFacts, named: set[str]) -> Iterator[Finding]:
    missing = sorted(named - facts.sizes.keys())
    if missing:
        yield found(
            "PF9",
            Severity.ERROR,
            "Files that the index names are not there.",
            f"{len(missing)} of {len(named)} missing: {', '.join(missing[:3])}",
            f"download {missing[0]} again",
        )


def _extents(facts: WeightFacts, named: set[str]) -> Iterator[Finding]:
    """Yield files that end before their last tensor, or go on behind it: readers of safetensors refuse both."""
    held = {name: facts.extents[name].header + facts.extents[name].data for name in named & facts.extents.keys()}
    wrong = sorted(name for name, size in held.items() if facts.sizes.get(name, size) != size)
    if wrong:
        first = wrong[0]
        yield found(
            "PF9",
            Severity.ERROR,
            "A weight file is not as long as its own header says.",
            f"{len(wrong)} of {len(named)} files, first {first} with {facts.sizes[first]:,} bytes, "
            f"{held[first]:,} by its header",
            f"download {first} again: a download was cut off, or written over",
        )


def _total(facts: WeightFacts, named: set[str]) -> Iterator[Finding]:
    """Yield an index whose total is not that of the tensors; whether files are whole, their headers decide."""
    if not facts.total_bytes:
        return
    read = named <= facts.extents.keys()
    there = sum(facts.extents[name].data if read else facts.sizes[name] for name in named)
    differs = there != facts.total_bytes if read else there < _WHOLE * facts.total_bytes
    if differs:
        yield found(
            "PF9",
            Severity.WARNING,
            "The index states another total than its files hold.",
            f"{there:,} bytes there, total_size {facts.total_bytes:,}",
            "nothing to do if the model came like that; else download the index and the files of one revision",
        )


def _pointers(facts: WeightFacts, named: set[str], release: str) -> Iterator[Finding]:
    known = failure("pointer_file", release)
    if known is None:
        return
    pointers = sorted(facts.pointers & named)
    tiny = sorted(n for n in named & facts.sizes.keys() if n not in facts.pointers and facts.sizes[n] == 0)
    if pointers:
        sizes = ", ".join(f"{facts.sizes[name]} bytes" for name in pointers[:1])
        yield of_failure(
            "PF9",
            known,
            f"A git-LFS pointer {known.note}.",
            f"{len(pointers)} of {len(named)} files, first {pointers[0]} with {sizes}",
            "git lfs pull, or download the model with huggingface-cli",
        )
    if tiny:
        message = f"{len(tiny)} of {len(named)} files are empty."
        yield found("PF9", Severity.ERROR, message, f"0 bytes: {', '.join(tiny[:3])}", f"download {tiny[0]} again")


def head(facts: WeightFacts, model: ModelSpec, release: str) -> Iterator[Finding]:
    """PF10: an output head that ``config.json`` promises and the weights lack, or the other way round."""
    names = set(facts.indexed or facts.shapes)
    if f"{model.prefix}embed_tokens.weight" not in names:
        return  # the names are another layout's, or the embedding is what is missing
    stem, known = model.head_name.removesuffix("weight"), failure("head_missing", release)
    holds = any(name.startswith(stem) for name in names)
    if not holds and not model.tied_embeddings and known is not None:
        yield found(
            "PF10",
            Severity.ERROR,
            f"{model.head_name} is missing although tie_word_embeddings is false; with {release} it {known.note}.",
            f"tie_word_embeddings false, {len(names)} tensors without {model.head_name}",
            "download the model again, or set tie_word_embeddings to true if the head is the embedding",
        )
    if holds and model.tied_embeddings:
        yield found(
            "PF10",
            Severity.WARNING,
            f"{model.head_name} is stored although tie_word_embeddings is true: one of the two would be dropped.",
            f"tie_word_embeddings true, {model.head_name} stored",
            "nothing to do if they are equal, which trtkit convert compares; else set tie_word_embeddings to false",
        )


def embedding(facts: WeightFacts, model: ModelSpec, release: str) -> Iterator[Finding]:
    """PF4: an embedding with other rows than ``vocab_size``."""
    shape = facts.shapes.get(f"{model.prefix}embed_tokens.weight")
    known = failure("embedding_rows", release)
    if shape and known is not None and shape[0] != model.vocab:
        yield found(
            "PF4",
            Severity.ERROR,
            f"The embedding has other rows than config.json says, and so {known.note}.",
            f"{shape[0]:,} rows, vocab_size {model.vocab:,}",
            f"set vocab_size to {shape[0]} in config.json if tokens were added to the model",
        )


def factors(facts: WeightFacts, model: ModelSpec, release: str) -> Iterator[Finding]:
    """PF12: INT4 weights by the word of AWQ without the factors of their inputs, which the loader reads."""
    known, names = failure("factors_of_awq", release), set(facts.indexed or facts.shapes)
    if known is None or model.stored is None:
        return
    modules = (name.removesuffix(_SCALE) for name in names if name.endswith(tuple(f"{one}{_SCALE}" for one in _ALONE)))
    lacking = sorted(one for one in modules if _is_int4(model.stored, one) and f"{one}.pre_quant_scale" not in names)
    if lacking:
        yield of_failure(
            "PF12",
            known,
            f"INT4 weights without factors of their inputs {known.note} by the PyTorch backend.",
            f"{len(lacking)} layers without pre_quant_scale, first {lacking[0]}",
            "a checkpoint of INT4 AWQ, or trtkit convert of the 16-bit original, which writes factors of 1",
        )


_SCALE, _ALONE = ".weight_scale", (".self_attn.o_proj", ".mlp.down_proj")
"""Linear layers that the loader fuses with no other; those of experts are loaded otherwise."""
_INT4 = ("int4_awq", "int4_wo")


def _is_int4(stored: StoredFormats, module: str) -> bool:
    """Whether a module's weights are INT4: by the format of all, or by the first pattern that names it."""
    if stored.weights != "mixed":
        return stored.weights in _INT4
    return next((chosen in _INT4 for pattern, chosen in stored.layers if fnmatchcase(module, pattern)), False)
