"""Rules about how the models of a Triton repository fit together: ensembles and their members (PF21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from trtllm_kit.findings import Finding
from trtllm_kit.light import dataclass
from trtllm_kit.plan.given.finding import of_failure
from trtllm_kit.upstream.failures import failure

RULE = "PF21"


@dataclass(frozen=True)
class Step:
    """One step of an ensemble."""

    model: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The model's tensor -> the ensemble's."""
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A model of the repository, as an ensemble sees it."""

    max_batch_size: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    """Inputs and outputs with the type that is declared for them."""
    inputs: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    """Inputs that a request may leave out."""
    steps: tuple[Step, ...] = ()
    whole: bool = True
    """Whether its configuration could be read, so that what is not in it is not there."""


def ensemble(name: str, members: Mapping[str, Member], release: str) -> Iterator[Finding]:
    """Run every rule about one ensemble; ``members`` are all models of the repository by name."""
    whole = members[name]
    for step in whole.steps:
        member = members.get(step.model)
        if member is None:
            yield from _absent(name, step, release)
        elif member.whole:
            yield from _batch(name, whole, step, member, release)
            yield from _mapped(name, step, member, release)
    yield from _types(name, members, release)


def _absent(name: str, step: Step, release: str) -> Iterator[Finding]:
    known = failure("ensemble_member_absent", release)
    if known is not None:
        yield of_failure(
            RULE,
            known,
            f"An ensemble with a model that is not in the repository {known.note}.",
            f"{name}: step {step.model}, no folder of that name",
            f"put {step.model} beside {name}",
        )


def _batch(name: str, whole: Member, step: Step, member: Member, release: str) -> Iterator[Finding]:
    known = failure("ensemble_above_member", release)
    if known is not None and whole.max_batch_size > member.max_batch_size:
        yield of_failure(
            RULE,
            known,
            f"An ensemble whose max_batch_size is above a member's {known.note}.",
            f"{name}: max_batch_size {whole.max_batch_size}, {step.model} has {member.max_batch_size}",
            f"max_batch_size: {member.max_batch_size} in {name}, or more in {step.model}",
        )


def _mapped(name: str, step: Step, member: Member, release: str) -> Iterator[Finding]:
    known = failure("ensemble_tensor_absent", release)
    strange = [tensor for tensor in (*step.inputs, *step.outputs) if tensor not in member.types]
    lacking = sorted(member.inputs - member.optional - step.inputs.keys())
    if known is None:
        return
    if strange:
        yield of_failure(
            RULE,
            known,
            f"An ensemble that maps a tensor which its member does not declare {known.note}.",
            f"{name}: step {step.model} has no {', '.join(strange)}",
            f"declare {strange[0]} in {step.model}, or leave it out of the step",
        )
    if lacking:
        yield of_failure(
            RULE,
            known,
            f"An ensemble that leaves out an input which its member needs {known.note}.",
            f"{name}: step {step.model} gets no {', '.join(lacking)}",
            f"map {lacking[0]}, or declare it optional in {step.model}",
        )


def _types(name: str, members: Mapping[str, Member], release: str) -> Iterator[Finding]:
    """Yield tensors of the ensemble that its parts declare with different types; the first declaration is shown."""
    known = failure("ensemble_types_differ", release)
    if known is None:
        return
    declared = {tensor: (kind, name) for tensor, kind in members[name].types.items()}
    for step in members[name].steps:
        types = members[step.model].types if step.model in members else {}
        for inner, outer in (*step.inputs.items(), *step.outputs.items()):
            if inner not in types:
                continue
            kind, where = declared.setdefault(outer, (types[inner], step.model))
            if kind != types[inner]:
                yield of_failure(
                    RULE,
                    known,
                    f"A tensor with two types {known.note}.",
                    f"{name}: {outer} is {kind} in {where}, {inner} of {step.model} is {types[inner]}",
                    f"data_type: {kind} for {inner} of {step.model}",
                )
