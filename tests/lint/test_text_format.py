"""The reader of protobuf's text format, compared with protobuf's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lint.five_models import TENSORS, config_text
from trtllm_kit.lint.text_format import Message, Scalar, TextFormatError, parse_text_format
from trtllm_kit.repository.model_config import ModelConfig, ModelTensor
from trtllm_kit.repository.pbtxt import write_pbtxt

text_format = pytest.importorskip("google.protobuf.text_format")
pb = pytest.importorskip("tritonclient.grpc.model_config_pb2")

TAKEN = (
    'name: "a" "b"',
    "name: 'it''s' # a comment",
    'name: "tab\\t quote\\" octal\\303\\251 hex\\x41 wide\\u00e9\\U0001F600"',
    "max_batch_size: 0x10",
    "max_batch_size: 010",
    "max_batch_size: -1",
    "input [ {name: 'x' data_type: TYPE_INT32 dims: [1,-1]}, { name: 'y' } ]",
    "instance_group: < count: 3 kind: KIND_CPU >",
    "instance_group [ { count: 1 gpus: 0 gpus: 1 } ]; backend: 'python',",
    "input []",
    "dynamic_batching { preferred_batch_size: [ ] }",
    "dynamic_batching { }",
    "model_transaction_policy { decoupled: True }",
    'parameters { key: "a" value: { string_value: "" } }',
    'optimization { execution_accelerators { cpu_execution_accelerator: { parameters { key: "k" value: "v" } } } }',
    "# nothing but a comment",
    "",
)
REFUSED = (
    'input { name: "a"',
    'name "a"',
    'name: "a"}',
    'name: "a',
    'name: "a"; ; backend: "b"',
    "input: [{name:'a'} {name:'b'}]",
    "input { dims: [1,] }",
    "input { dims [1] }",
    "name: \x00",
    "instance_group < count: 3 }",
    "max_batch_size:",
    ": 5",
)


def plain(message: Message) -> list[Any]:
    """Lay a tree out as lists, for comparison."""
    return [(one.name, one.value.text if isinstance(one.value, Scalar) else plain(one.value)) for one in message.fields]


@pytest.mark.parametrize("text", TAKEN)
def test_what_protobuf_takes_is_taken(text: str) -> None:
    """Every form of the format that configurations have."""
    text_format.Parse(text, pb.ModelConfig())
    parse_text_format(text.encode())


@pytest.mark.parametrize("text", REFUSED)
def test_what_protobuf_refuses_is_refused(text: str) -> None:
    """Broken text is an error here and there."""
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, pb.ModelConfig())
    with pytest.raises(TextFormatError):
        parse_text_format(text.encode())


def test_strings_are_unescaped_as_protobuf_does() -> None:
    """Octal, hexadecimal, letters and code points give the same text."""
    written = '"a\\n\\"\\\\\\101\\x42\\u00e9" \'c"\''
    theirs = text_format.Parse(f"name: {written}", pb.ModelConfig()).name
    assert theirs == parse_text_format(f"name: {written}".encode()).text("name")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_whatever_the_writer_escapes_is_read_back(text: str) -> None:
    """A value of any letters comes through the kit's writer and this reader."""
    config = ModelConfig(
        name="m", backend="python", decoupled=False, parameters={"key": text},
        inputs=(ModelTensor(name="x", data_type="TYPE_BOOL", dims=(1,)),), outputs=(),
    )  # fmt: skip
    read = parse_text_format(write_pbtxt(config).encode())
    assert text == read.message("parameters").message("value").text("string_value")


@pytest.mark.parametrize("model", TENSORS)
def test_a_model_of_five_gives_the_tree_that_protobuf_has(model: str) -> None:
    """Names, types, dims, steps and parameters are those that protobuf reads."""
    theirs = text_format.Parse(config_text(model), pb.ModelConfig())
    ours = parse_text_format(config_text(model).encode())
    assert [one.name for one in theirs.input] == [one.text("name") for one in ours.messages("input")]
    assert [list(one.dims) for one in theirs.output] == [
        [int(size) for size in one.scalars("dims")] for one in ours.messages("output")
    ]
    assert {key: value.string_value for key, value in theirs.parameters.items()} == {
        one.text("key"): one.message("value").text("string_value") for one in ours.messages("parameters")
    }
    steps = ours.message("ensemble_scheduling").messages("step")
    assert [dict(step.input_map) for step in theirs.ensemble_scheduling.step] == [
        {one.text("key"): one.text("value") for one in step.messages("input_map")} for step in steps
    ]


@given(st.integers(0, len(config_text("ensemble"))))
def test_a_text_cut_off_anywhere_is_an_error_or_fewer_fields(length: int) -> None:
    """No cut crashes the reader, and what it takes protobuf takes too."""
    cut = config_text("ensemble")[:length]
    read = outcome(cut.encode())
    if isinstance(read, TextFormatError):
        assert 1 <= read.line <= cut.count("\n") + 1
    else:
        text_format.Parse(cut, pb.ModelConfig())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Garbage gives one kind of error."""
    read = outcome(raw)
    assert isinstance(read, Message) or read.line >= 1


def outcome(raw: bytes) -> Message | TextFormatError:
    """Return the tree, or what is wrong."""
    try:
        return parse_text_format(raw)
    except TextFormatError as error:
        return error


def test_lines_are_those_of_the_file() -> None:
    """A field stands where its name does, an element of a list where it begins."""
    text = 'name: "a"\n# one\ninput [\n  { name: "x" },\n  { name: "y" }\n]\n'
    assert [1, 3, 3] == [one.line for one in parse_text_format(text.encode()).fields]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('name: "a"\nbackend "b"\n', 2, 'found "b", expected ":" or "{" after backend'),
        ("input {\n  name: 'a'\n", 3, "found the end of the file, expected a field's name"),
        ('name: "a\n', 1, "a text in quotes does not end on its line"),
        ("a {" * 102 + "}" * 102, 1, "nested deeper than 100 levels"),
    ],
)
def test_an_error_says_line_and_what_was_expected(text: str, line: int, said: str) -> None:
    """The first thing wrong, where it stands."""
    with pytest.raises(TextFormatError) as refused:
        parse_text_format(text.encode())
    assert (line, said) == (refused.value.line, refused.value.said)


def test_bytes_that_are_no_text_are_said_with_their_line() -> None:
    """A binary file is refused at its first byte that is no UTF-8."""
    with pytest.raises(TextFormatError, match="line 2: byte 0xff is not UTF-8"):
        parse_text_format(b"name: 'a'\n\xff\xfe")


def test_a_bare_placeholder_is_a_value_of_its_own_kind() -> None:
    """What a template left is read, so that every place of it can be told at once."""
    read = parse_text_format(b"max_batch_size: ${triton_max_batch_size}\ninput [{ data_type: ${kind} dims: [ ${n} ] }]")
    assert [
        ("max_batch_size", "${triton_max_batch_size}"),
        ("input", [("data_type", "${kind}"), ("dims", "${n}")]),
    ] == plain(read)
