"""Rules about a checkpoint for ``trtllm-build`` that somebody converted (PF1, PF2, PF7, PF9, PF11-13)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.families import family_support
from trtllm_kit.upstream.precision import precision
from trtllm_kit.upstream.quant_algos import format_named
from trtllm_kit.upstream.releases import known_releases
from trtllm_kit.upstream.trtllm_checkpoint import Section, rank_model, rope_kinds, spreads_remainder, taken_keys

_DOUBT = "not confirmed for this release"


@dataclass(frozen=True)
class CheckpointFacts:
    """What ``config.json`` of a checkpoint says, and the files beside it; None is what nobody said."""

    architecture: str | None = None
    heads: int | None = None
    kv_heads: int | None = None
    layers: int | None = None
    mapping: Mapping[str, Any] = field(default_factory=dict)
    quantization: Mapping[str, Any] = field(default_factory=dict)
    rope_kind: str | None = None
    """Kind of its rope scaling."""
    files: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each ``rankN.safetensors``."""
    broken: Mapping[int, str] = field(default_factory=dict)
    """Files whose header cannot be read, and why."""
    config: bool = True

    def size(self, name: str) -> int:
        """Return one of the sizes of its mapping; what is not stated is 1."""
        value = self.mapping.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1

    @property
    def ranks(self) -> int:
        """Files there must be: ranks that share context read the same one."""
        return self.size("tp_size") * self.size("pp_size")


def checkpoint(facts: CheckpointFacts, release: str, capability: int | None = None) -> Iterator[Finding]:
    """Run every rule about a checkpoint; ``capability`` is that of the GPU it is for, None where nobody says."""
    yield from files(facts)
    if not facts.config:
        return
    yield from _builder(release)
    yield from _mapping(facts, release)
    yield from _heads(facts, release)
    yield from _stages(facts, release)
    yield from _keys(facts, release)
    yield from _family(facts, release)
    yield from _rope(facts, release)
    yield from _gpu(facts, release, capability)


def _builder(release: str) -> Iterator[Finding]:
    """PF19: a release without the builder that reads such a checkpoint."""
    gone = failure("engine_flow_gone", release)
    if gone is not None:
        yield of_failure(
            "PF19",
            gone,
            f"The builder of engines, which reads such a checkpoint, {gone.note} in release {release}.",
            f"a checkpoint for trtllm-build, read by {release}",
            "serve the Hugging Face checkpoint (trtkit migrate checkpoint makes one of this), or an image of 1.2.1",
        )


def files(facts: CheckpointFacts) -> Iterator[Finding]:
    """PF9: a file for each rank, whole, and ``config.json``."""
    if not facts.config:
        yield found(
            "PF9",
            Severity.ERROR,
            "The checkpoint has no config.json.",
            f"{len(facts.files)} rank files, 0 config.json",
            "copy config.json of the conversion beside the rank files",
        )
        return
    missing, more = (
        sorted(set(range(facts.ranks)) - facts.files.keys()),
        sorted(facts.files.keys() - set(range(facts.ranks))),
    )
    if missing:
        yield found(
            "PF9",
            Severity.ERROR,
            "The checkpoint does not hold a file for each rank.",
            f"{facts.ranks} ranks by its mapping (tensor x pipeline), missing {', '.join(map(str, missing[:8]))}",
            "copy the folder again, or convert again",
        )
    for rank, why in sorted(facts.broken.items()):
        yield found("PF9", Severity.ERROR, f"rank{rank}.safetensors is no whole weight file.", why, "copy it again")
    if more:
        yield found(
            "PF9",
            Severity.WARNING,
            "The checkpoint holds rank files that its config.json does not speak of.",
            f"{facts.ranks} ranks by its mapping, more files for {', '.join(map(str, more[:8]))}",
            "convert into an empty folder",
        )


def _mapping(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF20: a mapping whose parts do not multiply to its whole."""
    known, stated = failure("mapping_of_checkpoint", release), facts.mapping.get("world_size")
    if known is None:
        return
    whole = facts.ranks * facts.size("cp_size")
    if isinstance(stated, int) and stated != whole:
        compared = f"world_size {stated}, tensor x pipeline x context is {whole}"
        message = f"A mapping whose sizes do not give its world_size {known.note}."
        yield of_failure("PF20", known, message, compared, f"mapping.world_size: {whole}")
    tensor, expert = facts.size("moe_tp_size") * facts.size("moe_cluster_size"), facts.size("moe_ep_size")
    stated_experts = {"moe_tp_size", "moe_ep_size"} <= facts.mapping.keys()
    if stated_experts and tensor * expert != facts.size("tp_size"):
        compared = f"moe_tp_size {tensor} x moe_ep_size {expert}, tp_size {facts.size('tp_size')}"
        message = f"A mapping whose expert sizes do not give its tensor ranks {known.note}."
        yield of_failure("PF20", known, message, compared, "convert again with sizes whose product is tp_size")


def _heads(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF1 and PF2: attention heads over the tensor ranks."""
    known = failure("heads_over_ranks", release)
    ranks = facts.size("attn_tp_size" if "attn_tp_size" in facts.mapping else "tp_size")
    if known is None or facts.heads is None:
        return
    if facts.heads % ranks:
        message = f"Attention heads that the tensor ranks do not divide {known.note}."
        yield of_failure(
            "PF1", known, message, f"{facts.heads} heads, {ranks} tensor ranks", "convert again for other ranks"
        )
    kv = facts.kv_heads or facts.heads
    if kv % ranks if kv >= ranks else ranks % kv:
        message = f"KV heads that can be neither split nor copied over the tensor ranks {known.note}."
        yield of_failure("PF2", known, message, f"{kv} KV heads, {ranks} tensor ranks", "convert again for other ranks")


def _stages(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF20: layers that the pipeline stages do not divide, in releases that lose the rest."""
    stages, known = facts.size("pp_size"), failure("layers_over_stages", release)
    if known is not None and facts.layers and facts.layers % stages and not spreads_remainder(release):
        yield of_failure(
            "PF20",
            known,
            f"What is left of the layers after every stage has equally many {known.note}.",
            f"{facts.layers} layers, pp_size {stages}",
            "convert again with a pp_size that divides the layers",
        )


def _keys(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF12: keys of sections that upstream builds by keyword."""
    known = failure("key_of_checkpoint", release)
    sections: tuple[tuple[Section, Mapping[str, Any]], ...] = (
        ("mapping", facts.mapping),
        ("quantization", facts.quantization),
    )
    for name, section in sections:
        taken = taken_keys(name, release)
        for key in section:
            if known is None or not taken or key in taken:
                continue
            near = difflib.get_close_matches(key, sorted(taken), n=1, cutoff=0.75)
            yield of_failure(
                "PF12",
                known,
                f"A key of {name} that the release does not have {known.note}.",
                f"{name}.{key}; known are {', '.join(sorted(taken))}",
                f"write {near[0]}" if near else f"leave {name}.{key} out, or build with the release that wrote it",
            )


def _family(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF13: an architecture that no list of the release names for engines."""
    name = facts.architecture
    if name is None or family_support(name, "trtllm-build", release) is not None:
        return
    loads = [one for one in known_releases() if family_support(name, "trtllm-build", one)]
    yield found(
        "PF13",
        Severity.WARNING,
        f"Release {release} is not known to build engines of {name}.",
        f"{name}: {f'listed for {loads[0]} to {loads[-1]}' if loads else 'listed for no release'}; {_DOUBT}",
        f"build with {loads[-1]}" if loads else "the Hugging Face checkpoint through the LLM API",
    )


def _rope(facts: CheckpointFacts, release: str) -> Iterator[Finding]:
    """PF11: a kind of rope scaling that engines of the release are not known to apply."""
    known = rope_kinds(release)
    if rank_model(facts.architecture or "", release) is None:
        return  # other models have ropes of their own
    if facts.rope_kind is not None and known and facts.rope_kind not in known:
        yield found(
            "PF11",
            Severity.WARNING,
            f"Engines of release {release} are not known to apply rope scaling {facts.rope_kind}.",
            f"rotary_scaling {facts.rope_kind}; known are {', '.join(known)}; {_DOUBT}",
            "lengths within the model's own positions",
        )


def _gpu(facts: CheckpointFacts, release: str, capability: int | None) -> Iterator[Finding]:
    """PF7: a number format that the GPU does not compute in."""
    algo = facts.quantization.get("quant_algo")
    chosen = format_named(algo) if isinstance(algo, str) else None
    known = precision("weights", chosen, release, "tensorrt_llm") if chosen else None
    if known is None or capability is None or capability in known.capabilities:
        return
    surely = known.certainty == "read"
    yield found(
        "PF7",
        Severity.ERROR if surely else Severity.WARNING,
        f"Weights in {algo} do not run on this GPU with release {release}.",
        f"compute capability {capability}; {algo} runs on {', '.join(map(str, known.capabilities))}"
        + ("" if surely else f"; {_DOUBT}"),
        "a checkpoint in another format, or another GPU",
    )
