"""Reads a model's ``config.pbtxt``: what the rules ask of it, and on which line it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.config_fields import INTEGER, RULE, refused
from trtllm_kit.lint.text_format import Message, TextFormatError, parse_text_format
from trtllm_kit.plan.given.ensembles import Member, Step
from trtllm_kit.plan.given.facts import InstanceGroup, TritonModel


@dataclass(frozen=True)
class Config:
    """One ``config.pbtxt``."""

    model: TritonModel
    steps: tuple[Step, ...] = ()
    optional: frozenset[str] = frozenset()
    """Inputs that a request may leave out."""
    inputs: frozenset[str] = frozenset()
    places: dict[str, int] = field(default_factory=dict)
    """A parameter's key, a tensor's or a field's name -> its line."""
    problems: tuple[tuple[Finding, int], ...] = ()
    """What Triton's reader would refuse, each with its line."""
    readable: bool = True
    states_policy: bool = False
    """Whether there is a transaction policy at all."""

    @property
    def member(self) -> Member:
        """The model as an ensemble sees it."""
        own = self.model
        whole = self.readable and not own.bare_placeholders
        return Member(own.max_batch_size, own.tensors, self.inputs, self.optional, self.steps, whole)


def read_model_config(raw: bytes, folder: str, *, llmapi: bool) -> Config:
    """Read the bytes of a ``config.pbtxt``; ``folder`` is the name of the model's folder."""
    try:
        top = parse_text_format(raw)
    except TextFormatError as error:
        return Config(
            TritonModel(folder, llmapi=llmapi), problems=((_unreadable(folder, error), error.line),), readable=False
        )
    problems = tuple(refused(top, folder))
    inputs = top.messages("input")
    return Config(
        _model(top, folder, llmapi=llmapi),
        tuple(_step(one) for one in top.message("ensemble_scheduling").messages("step")),
        frozenset(one.text("name") for one in inputs if _true(one.text("optional"))),
        frozenset(one.text("name") for one in inputs),
        _places(top),
        problems,
        states_policy=any(True for _ in top.all("model_transaction_policy")),
    )


def _model(top: Message, folder: str, *, llmapi: bool) -> TritonModel:
    batching = top.message("dynamic_batching")
    known_size = not top.text("max_batch_size").startswith("${")
    named = {one.text("name"): one.text("data_type") for kind in ("input", "output") for one in top.messages(kind)}
    return TritonModel(
        name=top.text("name") or folder,
        backend=top.text("backend"),
        platform=top.text("platform"),
        max_batch_size=_integer(top.text("max_batch_size")),
        decoupled=_true(top.message("model_transaction_policy").text("decoupled")),
        parameters={one.text("key"): one.message("value").text("string_value") for one in top.messages("parameters")},
        instances=tuple(_group(one) for one in top.messages("instance_group")),
        preferred_batch_sizes=tuple(_integer(text) for text in batching.scalars("preferred_batch_size") if known_size),
        queue_delay_microseconds=_integer(batching.text("max_queue_delay_microseconds")),
        tensors={name: kind for name, kind in named.items() if kind.startswith("TYPE_")},
        bare_placeholders=tuple(dict.fromkeys(_placeholders(top))),
        llmapi=llmapi,
    )


def _group(message: Message) -> InstanceGroup:
    count = _integer(message.text("count"))
    gpus = tuple(_integer(text) for text in message.scalars("gpus"))
    return InstanceGroup(message.text("kind") or "KIND_AUTO", count or 1, gpus)


def _step(message: Message) -> Step:
    maps = [
        {one.text("key"): one.text("value") for one in message.messages(kind)} for kind in ("input_map", "output_map")
    ]
    return Step(message.text("model_name"), *maps)


def _places(top: Message) -> dict[str, int]:
    places: dict[str, int] = {}
    for one in top.fields:
        places.setdefault(one.name, one.line)
        if isinstance(one.value, Message):
            inside = {inner.name: inner.line for inner in one.value.fields}
            named = one.value.text("key") if one.name == "parameters" else one.value.text("name")
            places |= (
                {named: one.line} if named else {name: line for name, line in inside.items() if name not in places}
            )
    return places


def _placeholders(message: Message) -> Iterator[str]:
    for one in message.fields:
        if isinstance(one.value, Message):
            yield from _placeholders(one.value)
        elif one.value.kind == "placeholder":
            yield one.value.text


def _unreadable(model: str, error: TextFormatError) -> Finding:
    return Finding(
        rule=RULE,
        severity=Severity.ERROR,
        message="config.pbtxt is not protobuf's text format, so the server does not load the model.",
        compared=f"{model}: {error}",
        suggestion="render the file again; a copy that was cut off ends within a message",
    )


def _true(text: str) -> bool:
    return text in ("true", "True", "t", "1")


def _integer(text: str) -> int:
    """Return a whole number, 0 for what is none: that is a problem of its own."""
    if not INTEGER.fullmatch(text):
        return 0
    digits = text.lstrip("-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") and digits != "0" else 10
    return int(text, base)
