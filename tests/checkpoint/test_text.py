"""Texts for calibration and reports: plain and JSONL, and which samples a seed takes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.load import load_tokenizer
from trtllm_kit.checkpoint.text import Text, chosen_samples, read
from trtllm_kit.errors import CalibrationError, StorageError


def jsonl(path: Path, *records: object) -> str:
    """Write one record a line and return the path."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_the_operator_s_own_text_is_read(tmp_path: Path) -> None:
    """UTF-8 only, with the kit's errors for anything else."""
    (tmp_path / "mine.txt").write_text("grüße", encoding="utf-8")
    assert Text("grüße") == read(str(tmp_path / "mine.txt"))
    (tmp_path / "latin.txt").write_bytes("grüße".encode("latin-1"))
    with pytest.raises(CalibrationError, match=r"not UTF-8[\s\S]*give --text a UTF-8"):
        read(str(tmp_path / "latin.txt"), asked="--text")
    with pytest.raises(StorageError):
        read(str(tmp_path / "nowhere.txt"))


def test_the_bundled_text_is_long_and_varied() -> None:
    """Enough for the default sixteen pieces of 256 tokens, with code, tables and other scripts."""
    text = read(None).raw
    assert len(text.encode()) > 20_000
    for part in ("def ", "SELECT", "|---|", "User:", "春天", "駅前", "вокзале"):
        assert part in text


def test_each_record_of_a_jsonl_file_is_a_document(tmp_path: Path) -> None:
    """In one of the usual fields or in the one that is named; blank lines and blank documents are passed over."""
    path = jsonl(
        tmp_path / "mine.jsonl", {"text": "one", "answer": "1"}, {"content": "two", "answer": "2"}, {"text": " "}
    )
    with Path(path).open("a") as file:
        file.write("\n  \n")
    assert ("one", "two") == read(path).documents
    (tmp_path / "three.JSONL").write_text('{"answer": "3"}\r\n{"answer": "a\u2028b"}')
    assert ("3", "a\u2028b") == read(str(tmp_path / "three.JSONL"), "answer").documents
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == read(path).sha256


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("not json", "Expecting value"),
        ("[1]", "it holds a list, not an object"),
        ("null", "it holds null, not an object"),
        ('{"text": null}', "its field text holds null, not text"),
        ('{"a": "x", "b": "y"}', "it has the fields a, b, and none is text or content"),
        ("{}", "it has the fields none"),
        ('{"text": 3}', "its field text holds a number, not text"),
        ('{"text": "a", "text": "b"}', "text"),
    ],
)
def test_a_line_that_is_no_record_is_named_by_file_and_number(tmp_path: Path, line: str, why: str) -> None:
    """The first one with its reason, all others by their numbers."""
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "good"}\n\n' + f"{line}\n" * 7)
    with pytest.raises(CalibrationError, match=r"mine\.jsonl:3: no record with a text") as caught:
        read(str(path))
    assert why in caught.value.why
    assert "6 more such lines: 4, 5, 6, 7, ..." in caught.value.why
    assert 3 == caught.value.exit_code


def test_a_sample_of_a_jsonl_file_is_the_beginning_of_a_document(tmp_path: Path) -> None:
    """One document one sample; a short document gives a short one."""
    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    text = Text("", ("abcdefgh", "xy", "mnop"))
    assert [4, 2, 4] == [len(piece) for piece in text.samples(tokenizer, 9, 4)]
    assert tokenizer.encode("abcd").ids == text.samples(tokenizer, 1, 4)[0].tolist()


def test_a_report_reads_documents_until_it_has_its_tokens(tmp_path: Path) -> None:
    """In windows, each begun anew; the last one is cut."""
    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    text = Text("", ("abcdefgh", "xyz", "mnop"))
    assert [4, 4, 2] == [len(piece) for piece in text.first(tokenizer, 10, 4)]
    assert [4, 4, 3, 4] == [len(piece) for piece in text.first(tokenizer, 99, 4)]
    assert [3] == [len(piece) for piece in text.first(tokenizer, 3, 4)]


def test_without_a_seed_the_first_samples_are_taken(tmp_path: Path) -> None:
    """As many as there are."""
    assert [0, 1, 2] == chosen_samples(9, 3, 0)
    assert [0, 1] == chosen_samples(2, 3, 0)


def test_a_seed_takes_the_samples_with_the_lowest_hash() -> None:
    """The documented rule, worked out here: it holds on every machine and in every release."""
    ranks = {at: hashlib.sha256(f"7:{at}".encode()).hexdigest() for at in range(10)}
    assert sorted(sorted(ranks, key=lambda at: ranks[at])[:4]) == chosen_samples(10, 4, 7)


@given(available=st.integers(0, 60), count=st.integers(1, 70), seed=st.integers(0, 9))
def test_more_samples_keep_those_of_fewer(available: int, count: int, seed: int) -> None:
    """Ascending, distinct, within the text, and as many as asked or as there are."""
    chosen = chosen_samples(available, count, seed)
    assert min(available, count) == len(set(chosen))
    assert sorted(chosen) == chosen
    assert set(chosen) <= set(range(available))
    assert set(chosen) <= set(chosen_samples(available, count + 1, seed))


def test_the_seed_chooses_among_all_pieces_of_a_plain_text(tmp_path: Path) -> None:
    """In the order of the text, whole pieces only."""
    tokenizer = load_tokenizer(write_tiny_model(tmp_path))
    text = Text("abcdefghijklmnopqrstuvwxyz")
    pieces = text.samples(tokenizer, 6, 4)
    taken = text.samples(tokenizer, 2, 4, seed=5)
    assert [pieces[at].tolist() for at in chosen_samples(6, 2, 5)] == [piece.tolist() for piece in taken]
