"""Options of old programs, of all releases together."""

from __future__ import annotations

import pytest

from trtllm_kit.upstream.facts import read_table
from trtllm_kit.upstream.program_options import is_distinct, near_option, options_of

PROGRAMS = sorted({row["program"] for row in read_table("launchers")["flags"]})


@pytest.mark.parametrize(
    ("program", "word", "flag", "takes"),
    [
        ("trtllm-build", "--max_decoder_seq_len", "--max_seq_len", "whole"),
        ("trtllm-build", "--strongly_typed", "--strongly_typed", "maybe"),
        ("trtllm-build", "--lora_dir", "--lora_dir", "words"),
        ("convert_checkpoint.py", "--smoothquant", "--smoothquant", "number"),
        ("convert_checkpoint.py", "--medusa_model_dir", "--medusa_model_dir", "text"),
        ("quantize.py", "--quantize_lm_head", "--quantize_lm_head", "flag"),
        ("mpirun", "-np", "-n", "whole"),
        ("mpirun", "-mca", "--mca", "pair"),
        ("docker run", "-v", "--volume", "text"),
        ("trtllm-serve disaggregated", "-c", "--config_file", "text"),
    ],
)
def test_an_option_by_any_of_its_spellings(program: str, word: str, flag: str, takes: str) -> None:
    """Aliases, options that are gone and those of every model family are found."""
    option = options_of(program)[word]
    assert (flag, takes) == (option.flag, option.takes)


def test_the_release_at_hand_comes_first() -> None:
    """An option whose kind changed has the kind of the release that is asked for."""
    kinds = [options_of("trtllm-build", version)["--use_fused_mlp"].takes for version in ("0.12.0", "0.16.0")]
    assert ["flag", "text"] == kinds


def test_near_words() -> None:
    """A word with a slip has an option near it, with dashes for underscores as well; nonsense has none."""
    assert "--max_batch_size" == near_option("trtllm-build", "--max-batchsize")
    assert "--no-mpi" == near_option("launch_triton_server.py", "--no_mpi")
    assert "" == near_option("trtllm-build", "--zzzzzz")
    assert {} == options_of("nobody")


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_option_stands_twice(program: str) -> None:
    """A spelling belongs to one option of a program."""
    rows = [row for row in read_table("launchers")["flags"] if row["program"] == program]
    spelt = [name for row in rows for name in (row["flag"], *row.get("aliases", ()))]
    assert len(set(spelt)) == len(spelt)


def test_words_of_their_own() -> None:
    """Options of several words are told from those that any program may have."""
    assert [True, False, False] == [is_distinct(word) for word in ("--max_batch_size", "--host", "--max_batch_sizes")]
