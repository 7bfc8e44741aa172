"""Calls of ``trtllm-serve`` moved to another release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trtllm_kit.errors import NotMoved
from trtllm_kit.migrate.release.change import How
from trtllm_kit.migrate.release.serve_command import serve_rewritten
from trtllm_kit.migrate.release.yaml_file import Rewritten


def moved(text: str, source: str, target: str, document: Mapping[str, Any] | None = None) -> Rewritten:
    """Return a script for the other release; the document that it names holds ``document``."""
    return serve_rewritten(text, "serve.sh", source, target, lambda _: document)


@pytest.mark.parametrize(
    ("source", "target", "before", "after"),
    [
        ("1.2.1", "1.0.0", "--config a.yaml", "--extra_llm_api_options a.yaml"),
        ("1.2.1", "1.0.0", "--tensor_parallel_size 2 --free_gpu_memory_fraction=0.8",
         "--tp_size 2 --kv_cache_free_gpu_memory_fraction=0.8"),
        ("1.2.1", "1.0.0", "--moe_expert_parallel_size '4' --port 8000", "--ep_size '4' --port 8000"),
        ("1.0.0", "1.2.1", "--extra_llm_api_options a.yaml --tp_size 2", "--extra_llm_api_options a.yaml --tp_size 2"),
        ("1.0.0", "1.2.1", "--backend trt", "--backend tensorrt"),
        ("1.2.1", "main", "--max_batch_size ${BATCH:-64}", "--max_batch_size ${BATCH:-64}"),
        ("1.2.1", "1.1.0", "--enable_chunked_prefill --port 1", "--port 1"),
    ],
)  # fmt: skip
def test_an_option_has_the_name_of_its_release(source: str, target: str, before: str, after: str) -> None:
    """Names, words, quotes and signs; what both releases take stays as it is."""
    assert f"trtllm-serve m {after}\n" == moved(f"trtllm-serve m {before}\n", source, target).text


def test_a_call_over_several_lines_stays_one() -> None:
    """A line of its own goes with its option, and the sign that goes on with the last of them."""
    text = "mpirun -n 2 trtllm-serve m \\\n  --tp_size 2 \\\n"
    text += "  --enable_chunked_prefill \\\n  --custom_tokenizer x\necho done\n"
    expected = "mpirun -n 2 trtllm-serve m \\\n  --tp_size 2\necho done\n"
    made = moved(text, "1.2.1", "1.1.0")
    assert expected == made.text
    lost = [(row.key, row.line, row.how) for row in made.rows]
    assert [("--enable_chunked_prefill", 3, How.LOST), ("--custom_tokenizer", 4, How.LOST)] == lost
    assert "enable_chunked_prefill: true" in made.rows[0].why


def test_the_precedence_of_document_and_command_line_turns_round() -> None:
    """1.2 goes by the document, main by the command line: there the option says what the document said."""
    made = moved("trtllm-serve m --tp_size 2 --config a.yaml", "1.2.1", "main", {"tensor_parallel_size": 4})
    assert "trtllm-serve m --tp_size 4 --config a.yaml" == made.text
    assert [("--tp_size", "2", 4, How.EXACT)] == [(row.key, row.before, row.after, row.how) for row in made.rows]


def test_the_way_back_says_what_to_write_into_the_document() -> None:
    """Main goes by the command line, 1.2 by the document: no option can say it."""
    made = moved("trtllm-serve m --tp_size 2 --config a.yaml", "main", "1.2.1", {"tensor_parallel_size": 4})
    assert [How.LOST] == [row.how for row in made.rows]
    assert "write tensor_parallel_size: 2 into the document" in made.rows[0].why


def test_a_flag_that_a_whole_section_replaced_stays_without_effect() -> None:
    """1.0 drops the fraction of the command line when the document has the section; 1.2 would go by it."""
    text = "trtllm-serve m --kv_cache_free_gpu_memory_fraction 0.5 --extra_llm_api_options a.yaml"
    made = moved(text, "1.0.0", "1.2.1", {"kv_cache_config": {"dtype": "fp8"}})
    assert "trtllm-serve m --extra_llm_api_options a.yaml" == made.text
    same = moved(text, "1.0.0", "1.2.1", {"enable_chunked_prefill": True})
    assert (text, ()) == (same.text, same.rows)


def test_a_document_that_a_script_writes_itself_is_moved_with_it() -> None:
    """Between cat and EOF, with the lines of the script; a document with the shell's variables stays."""
    text = "cat > a.yml <<EOF\n# ours\nkv_cache_dtype: fp8  # half\nEOF\ncat > b.yml <<EOF\nkv_cache_dtype: $X\nEOF\n"
    made = moved(text, "0.21.0", "1.2.1")
    assert "cat > a.yml <<EOF\n# ours\nkv_cache_config:\n  dtype: fp8  # half\n" in made.text
    assert "cat > b.yml <<EOF\nkv_cache_dtype: $X\nEOF\n" in made.text
    assert [3] == [row.line for row in made.rows if row.key == "kv_cache_dtype"]


def test_a_call_inside_a_text_for_a_shell_is_moved() -> None:
    """``bash -c`` and containers hide the call behind other words."""
    text = 'docker run --rm image bash -c "cd /x && trtllm-serve m --config a.yaml"\n'
    assert text.replace("--config", "--extra_llm_api_options") == moved(text, "1.2.1", "1.0.0").text


def test_an_option_that_no_release_has_is_told_with_its_line() -> None:
    """And it stays: it is not known what it should have been."""
    made = moved("trtllm-serve m \\\n  --max_batchsize 8\n", "1.2.1", "main")
    assert [(2, "write --max_batch_size")] == [(one.line, one.finding.suggestion) for one in made.problems]
    assert "--max_batchsize 8" in made.text


def test_the_engine_backend_that_is_gone_is_told() -> None:
    """Main refuses it; the word stays, since another backend needs another model."""
    made = moved("trtllm-serve m --backend tensorrt", "1.2.1", "main")
    assert [("--backend", How.LOST)] == [(row.key, row.how) for row in made.rows]
    assert "trtllm-serve m --backend tensorrt" == made.text


def test_releases_whose_options_were_not_read_are_told() -> None:
    """Of trtllm-serve before 1.0 nothing is known: the call stays, and a note says so."""
    made = moved("trtllm-serve m --tp_size 2", "0.21.0", "1.2.1")
    assert "trtllm-serve m --tp_size 2" == made.text
    assert any("0.21.0" in note for note in made.notes)


def test_a_setting_of_main_without_an_option_of_its_own_leads_to_the_document() -> None:
    """--set is main's alone."""
    made = moved("trtllm-serve m --set enable_chunked_prefill=true", "main", "1.2.1")
    assert "trtllm-serve m" == made.text
    assert "write enable_chunked_prefill: true into" in made.rows[0].why


@pytest.mark.parametrize(
    "text",
    [
        "trtllm-serve m --config \\\n  a.yaml \\\n  --tp_size 2\n",
        'trtllm-serve m --config="a.yaml"\\\n --tp_size=2\n',
        'trtllm-serve m "--config=a.yaml" # --config a.yaml\n',
        "trtllm-serve m '--config' \"$DIR/a.yaml\"\n",
        "trtllm-serve m --config a.yaml & trtllm-serve n --config a.yaml\n",
        "bash -c 'cd /x &&\n trtllm-serve m \\\n --config a.yaml'\n",
        "#!/bin/bash\r\ntrtllm-serve m \\\r\n  --config a.yaml\r\n",
    ],
)
def test_an_option_is_replaced_where_the_call_has_it(text: str) -> None:
    """Over lines, in any quotes, twice on one line; what a comment says stays."""
    call, mark, comment = text.partition(" #") if " #" in text else (text, "", "")
    expected = call.replace("--config", "--extra_llm_api_options") + mark + comment
    assert expected == moved(text, "1.2.1", "1.0.0").text


def test_the_same_words_before_a_call_stay() -> None:
    """A text that is shown to somebody is no call."""
    text = 'echo "use --config a.yaml"; trtllm-serve m --config a.yaml\n'
    expected = 'echo "use --config a.yaml"; trtllm-serve m --extra_llm_api_options a.yaml\n'
    assert expected == moved(text, "1.2.1", "1.0.0").text


def test_an_option_that_cannot_be_written_is_no_change() -> None:
    """A text with marks of an outer shell reads otherwise than it stands: the row says what to write, as lost."""
    text = 'bash -c "echo \\"x\\"; trtllm-serve m --config a.yaml"\n'
    made = moved(text, "1.2.1", "1.0.0")
    assert text == made.text
    assert [("--config", "--config", How.LOST)] == [(row.key, row.to, row.how) for row in made.rows]
    assert "write --extra_llm_api_options a.yaml there" in made.rows[0].why


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('trtllm-serve m "${ARGS[@]}"', "${ARGS[@]} may hold options"),
        ("trtllm-serve m $OPTS --tp_size 2", "$OPTS may hold options"),
        ('trtllm-serve "$@"', "$@ may hold options"),
        ("PID=$(trtllm-serve m --config a.yaml)", "names trtllm-serve in a way that was not read"),
        ("python3 -m tensorrt_llm.commands.serve m", "names trtllm-serve in a way that was not read"),
        ('ssh host "trtllm-serve m --config a.yaml"', "names trtllm-serve in a way that was not read"),
    ],
)
def test_a_call_that_was_not_read_is_told_with_its_line(line: str, told: str) -> None:
    """Nothing is left alone in silence, and nothing is guessed."""
    made = moved(f"\n# trtllm-serve\n{line}\n", "1.2.1", "1.0.0")
    assert f"\n# trtllm-serve\n{line}\n" == made.text
    assert [True] == [note.startswith("line 3") and told in note for note in made.notes]
    assert made.notes == made.unread


def test_a_model_in_a_variable_is_no_hidden_option() -> None:
    """Guides name the model so."""
    assert () == moved('trtllm-serve "$MODEL" --tp_size 2\n', "1.2.1", "main").notes


def test_a_document_written_in_pieces_stays_and_is_told() -> None:
    """The whole of it is not known: a default written into each piece would replace what the other says."""
    text = "cat > a.yaml <<EOF\nkv_cache_dtype: fp8\nEOF\ncat >> a.yaml <<EOF\nuse_cuda_graph: true\nEOF\n"
    made = moved(text, "0.21.0", "1.2.1")
    assert text == made.text
    assert ["line 2", "line 5"] == [note[:6] for note in made.unread]


def test_tabs_and_line_ends_of_a_document_inside_stay() -> None:
    """``<<-`` takes tabs away when it runs; they are for whoever reads the script."""
    text = "cat <<-EOF > a.yaml\n\tkv_cache_dtype: fp8\n\tuse_cuda_graph: true\n\tEOF\n"
    expected = "cat <<-EOF > a.yaml\n\tkv_cache_config:\n\t  dtype: fp8\n\tcuda_graph_config: {}\n\tEOF\n"
    for end in ("\n", "\r\n"):
        given = text.replace("\n", end)
        made = moved(given, "0.21.0", "1.2.1", None)
        assert expected.replace("\n", end) == made.text


def test_a_document_inside_that_the_release_refuses_keeps_the_script_from_being_written() -> None:
    """As a document in a file of its own does."""
    made = moved("cat > a.yaml <<EOF\nkv_cache_dtype: fp8\nnot_a_key: 1\nEOF\n", "1.2.1", "main")
    assert made.is_refused
    assert {3} == {one.line for one in made.unresolved}


def test_a_script_with_nothing_for_it_is_an_error() -> None:
    """Nothing to change would say that it was looked at."""
    with pytest.raises(NotMoved, match="has nothing to carry over"):
        moved("ls -l\n", "1.2.1", "main")


def test_the_same_value_in_document_and_command_line_is_no_change() -> None:
    """Whoever wins says it."""
    for source, target in (("main", "1.2.1"), ("1.2.1", "main")):
        made = moved("trtllm-serve m --tp_size 2 --config a.yaml", source, target, {"tensor_parallel_size": 2})
        assert () == tuple(row for row in made.rows if row.key == "--tp_size")
