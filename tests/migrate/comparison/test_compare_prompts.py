"""The prompts that two deployments are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.errors import StorageError, UsageError
from trtllm_kit.migrate.comparison.prompts import prompts_of


def written(tmp_path: Path, name: str, text: str) -> str:
    """Write a file of prompts."""
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_a_line_is_a_prompt(tmp_path: Path) -> None:
    """Blanks at its ends are part of it, a carriage return is not; lines of blanks alone are none."""
    assert (" one ", "two") == prompts_of(written(tmp_path, "prompts.txt", " one \n\n  \ntwo\r\n"), 8, 0)


def test_a_record_is_a_prompt(tmp_path: Path) -> None:
    """The usual names of the field are known, and a line may hold several lines."""
    text = '{"prompt": "a\\nb"}\n{"text_input": "c"}\n{"id": 3, "text": "d"}\n'
    assert ("a\nb", "c", "d") == prompts_of(written(tmp_path, "log.jsonl", text), 8, 0)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("empty.txt", "\n\n", "empty.txt:1"),
        ("log.jsonl", '{"prompt": "a"}\n{"question": "b"}\n', "log.jsonl:2"),
        ("log.jsonl", '{"prompt": "a"}\n{"prompt": 7}\n', "log.jsonl:2"),
        ("log.jsonl", '{"prompt": "a"\n', "log.jsonl:1"),
        ("log.jsonl", '["a"]\n', "log.jsonl:1"),
    ],
)
def test_what_is_no_prompt_is_told_with_its_line(tmp_path: Path, name: str, text: str, place: str) -> None:
    """A file with anything else in it is refused whole."""
    with pytest.raises(UsageError) as refused:
        prompts_of(written(tmp_path, name, text), 8, 0)
    assert place in refused.value.what


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is an error of reading, not a number of prompts."""
    with pytest.raises(StorageError):
        prompts_of(str(tmp_path / "none.txt"), 8, 0)


def test_made_prompts_have_no_more_words_than_asked() -> None:
    """As many as are asked for, of a quarter of the longest length up to it, and not all of one length."""
    lengths = [len(prompt.split()) for prompt in prompts_of("40", 16, 0)]
    assert (40, 4, 16) == (len(lengths), min(lengths), max(lengths))
