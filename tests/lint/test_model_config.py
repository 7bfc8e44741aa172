"""Reading ``config.pbtxt``: the facts that rules ask for, and what Triton's reader would refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lint.five_models import TENSORS, config_text
from trtllm_kit.findings import Severity
from trtllm_kit.lint.config_fields import MOST
from trtllm_kit.lint.model_config import read_model_config
from trtllm_kit.plan.given.facts import InstanceGroup
from trtllm_kit.upstream.model_config import TOP, config_field, field_names, words_of

ERROR, WARNING = Severity.ERROR, Severity.WARNING


def said(text: str) -> list[tuple[str, str, int]]:
    """Return what is refused in a text: severity, numbers compared, line."""
    read = read_model_config(text.encode(), "m", llmapi=False)
    return [(finding.severity.value, finding.compared, line) for finding, line in read.problems]


def test_every_fact_of_a_filled_template_arrives() -> None:
    """Names, batching, instances, policy, parameters and types of one model."""
    config = read_model_config(config_text("tensorrt_llm").encode(), "tensorrt_llm", llmapi=False)
    model = config.model
    assert ("tensorrt_llm", "tensorrtllm", "", 64, True) == (
        model.name, model.backend, model.platform, model.max_batch_size, model.decoupled,
    )  # fmt: skip
    assert (InstanceGroup("KIND_CPU", 1),) == model.instances
    assert ((64,), 0) == (model.preferred_batch_sizes, model.queue_delay_microseconds)
    assert "/engines/llama" == model.parameters["gpt_model_path"]
    assert "TYPE_UINT64" == model.tensors["seed"]
    assert "input_lengths" in config.inputs - config.optional
    assert "temperature" in config.optional


def test_steps_of_an_ensemble_arrive_with_their_maps() -> None:
    """Three steps, each tensor with the one of the ensemble."""
    steps = read_model_config(config_text("ensemble").encode(), "ensemble", llmapi=False).steps
    assert ["preprocessing", "tensorrt_llm", "postprocessing"] == [step.model for step in steps]
    assert "text_input" == steps[0].inputs["QUERY"]
    assert "text_output" == steps[2].outputs["OUTPUT"]


@pytest.mark.parametrize("model", TENSORS)
def test_a_filled_template_has_nothing_to_refuse(model: str) -> None:
    """What protobuf takes is not spoken of."""
    assert () == read_model_config(config_text(model).encode(), model, llmapi=False).problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: '8'", [("error", "m: it takes a value of type int", 1)]),
        ("max_batch_size: 1.5", [("error", "m: it takes a value of type int", 1)]),
        ("max_batch_size: 8\nmax_batch_size: 9", [("error", "m: it can stand once", 2)]),
        ("input { name: 'x'\n data_type: INT32 }", [("error", f"m: it takes {', '.join(words_of('DataType'))}", 2)]),
        ("model_transaction_policy { decoupled: yes }", [("error", "m: it takes a value of type bool", 1)]),
        ("name: python", [("error", "m: it takes a value of type string", 1)]),
        ("name { }", [("error", "m: it is a string", 1)]),
        ("dynamic_batching: 5", [("error", "m: it takes a value of type ModelDynamicBatching", 1)]),
    ],
)
def test_values_of_another_type_are_errors(text: str, expected: list[tuple[str, str, int]]) -> None:
    """Protobuf refuses them, and so does the server."""
    assert expected == said(text)


def test_an_unknown_field_is_a_warning_with_the_nearest() -> None:
    """Triton's own releases differ in fields, so nothing is refused for certain."""
    read = read_model_config(b"name: 'm'\ninstance_groups [ { count: 1 } ]", "m", llmapi=False)
    (finding, line) = read.problems[0]
    assert (WARNING, "write instance_group", 2) == (finding.severity, finding.suggestion, line)
    assert finding.compared.startswith("m: instance_groups; known are name, platform, backend")


def test_a_broken_text_is_an_error_at_its_line() -> None:
    """A file that was cut off does not load."""
    read = read_model_config(b'name: "m"\ninput {\n', "m", llmapi=False)
    (finding, line) = read.problems[0]
    assert not read.readable
    assert (ERROR, 3) == (finding.severity, line)
    assert "m: line 3: found the end of the file, expected a field's name" == finding.compared


def test_placeholders_outside_quotes_are_collected() -> None:
    """Each once, wherever it stands; one inside quotes is a text."""
    read = read_model_config(
        b'max_batch_size: ${a}\ninput [{ data_type: ${b} }]\noutput [{ data_type: ${b} }]\nname: "${c}"',
        "m",
        llmapi=False,
    )
    assert ("${a}", "${b}") == read.model.bare_placeholders
    assert () == read.problems


def test_places_name_parameters_tensors_and_fields() -> None:
    """A finding that names one of them can be shown at its line."""
    places = read_model_config(
        b'name: "m"\ndynamic_batching {\n  max_queue_delay_microseconds: 5\n}\nparameters {\n key: "k"\n}\n'
        b'input [\n{ name: "x" }\n]',
        "m",
        llmapi=False,
    ).places
    assert {
        "name": 1,
        "dynamic_batching": 2,
        "max_queue_delay_microseconds": 3,
        "k": 5,
        "x": 8,
    }.items() <= places.items()


def test_the_table_of_fields_is_that_of_protobuf() -> None:
    """Every message within reach, with every field, its type and whether it repeats; and every enumeration's words."""
    pb = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    seen = dict(descriptors(pb.ModelConfig.DESCRIPTOR))
    for name, descriptor in seen.items():
        assert [field.name for field in descriptor.fields] == list(field_names(name)), name
        for field in descriptor.fields:
            known = config_field(name, field.name)
            assert known is not None
            assert field.is_repeated == known.repeated, known.key
            if field.enum_type is not None:
                assert [value.name for value in field.enum_type.values] == list(words_of(known.type))
            elif field.message_type is not None:
                assert short(field.message_type.full_name) == known.type
    assert TOP in seen


def descriptors(descriptor: object) -> Iterator[tuple[str, object]]:
    """Yield every message that a message can hold."""
    pending, seen = [descriptor], {}
    while pending:
        one = pending.pop()
        if one.full_name not in seen:  # type: ignore[attr-defined]
            seen[one.full_name] = one  # type: ignore[attr-defined]
            pending += [field.message_type for field in one.fields if field.message_type is not None]  # type: ignore[attr-defined]
    return ((short(name), one) for name, one in seen.items())


def short(name: str) -> str:
    """Cut the package off a message's name."""
    return name.removeprefix("inference.")


@pytest.mark.parametrize("text", ["a: [" + "1," * 999 + "1]", "input { dims: [" + "x," * 999 + "x] }", "b: 1\n" * 1000])
def test_a_file_full_of_mistakes_is_told_in_few_findings(text: str) -> None:
    """An unknown field once, and no more of anything than a reader takes in."""
    assert 1 <= len(said(text)) <= MOST
