"""What a folder's index, sizes and headers say, and what the rules of plans make of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.specs import llama
from trtllm_kit.checkpoint.weight_facts import weight_facts
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.weights import weights

MODEL = llama(1, 8, 2, 2, 16, vocab=32)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4000000000\n"


def rules(folder: Path) -> list[str]:
    """Return the rules that speak of a folder."""
    facts = weight_facts(folder, MODEL)
    return [] if facts is None else [finding.rule for finding in weights(facts, MODEL, "1.2.1")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two whole shards and their index."""
    tensors = {EMBEDDING: np.zeros((32, 8), np.float16), HEAD: np.zeros((32, 8), np.float16)}
    save_file({EMBEDDING: tensors[EMBEDDING]}, tmp_path / "a.safetensors")
    save_file({HEAD: tensors[HEAD]}, tmp_path / "b.safetensors")
    index(tmp_path, {EMBEDDING: "a.safetensors", HEAD: "b.safetensors"})
    return tmp_path


def index(folder: Path, weight_map: dict[str, str], total: int = 1024) -> None:
    """Write an index."""
    document = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document), "utf-8")


def test_a_whole_folder_is_not_spoken_of(folder: Path) -> None:
    """Index, sizes and shapes agree."""
    assert [] == rules(folder)


def test_a_pointer_is_told_from_a_small_file(folder: Path) -> None:
    """A shard of git-LFS is found by its first bytes; a small tensor is no pointer."""
    assert (folder / "a.safetensors").stat().st_size < 1024
    (folder / "b.safetensors").write_bytes(POINTER)
    assert ["PF9"] == rules(folder)


def test_shapes_come_from_the_header_of_the_embedding(folder: Path) -> None:
    """An embedding with two rows more than vocab_size is found without reading it."""
    save_file({EMBEDDING: np.zeros((34, 8), np.float16)}, folder / "a.safetensors")
    index(folder, {EMBEDDING: "a.safetensors", HEAD: "b.safetensors"}, total=1056)
    assert ["PF4"] == rules(folder)


def findings(folder: Path) -> list[Finding]:
    """Return what is said of a folder's files."""
    facts = weight_facts(folder, MODEL)
    assert facts is not None
    return list(weights(facts, MODEL, "1.2.1"))


@pytest.mark.parametrize(("cut", "there"), [(511, "511"), (1, "1"), (-4, "516")])
def test_a_file_that_is_not_as_long_as_its_header_says_is_an_error(folder: Path, cut: int, there: str) -> None:
    """A download that ends early, or bytes behind the last tensor, are found from the header."""
    whole = (folder / "b.safetensors").read_bytes()
    header = len(whole) - 512
    (folder / "b.safetensors").write_bytes(whole[: header + cut] if cut > 0 else whole + b"\0" * -cut)
    found = findings(folder)
    assert [("PF9", Severity.ERROR)] == [(finding.rule, finding.severity) for finding in found]
    assert f"{header + int(there):,} bytes, {header + 512:,} by its header" in found[0].compared


def test_a_file_that_ends_within_its_header_is_an_error(folder: Path) -> None:
    """The header's own length says that there is more of it."""
    (folder / "b.safetensors").write_bytes((folder / "b.safetensors").read_bytes()[:40])
    assert [("PF9", Severity.ERROR)] == [(finding.rule, finding.severity) for finding in findings(folder)]


@pytest.mark.parametrize("total", [1, 1000, 2048, 10**12])
def test_whole_files_are_not_refused_for_the_total_of_their_index(folder: Path, total: int) -> None:
    """A published index may state another total; the headers say that the files are whole, so it is a warning."""
    index(folder, {EMBEDDING: "a.safetensors", HEAD: "b.safetensors"}, total=total)
    found = findings(folder)
    assert [("PF9", Severity.WARNING)] == [(finding.rule, finding.severity) for finding in found]
    assert f"1,024 bytes there, total_size {total:,}" == found[0].compared


def test_a_header_that_speaks_of_offsets_in_a_text_is_not_taken_in(folder: Path) -> None:
    """Quotes within names and metadata are escaped, so what looks like an offset there is none."""
    said = {"note": '{"data_offsets": [0, 9999]}'}
    save_file({HEAD: np.zeros((32, 8), np.float16)}, folder / "b.safetensors", metadata=said)
    assert [] == findings(folder)


def test_one_file_without_an_index_is_whole(tmp_path: Path) -> None:
    """A small model has no index; its head is looked for in the one header."""
    save_file({EMBEDDING: np.zeros((32, 8), np.float16)}, tmp_path / "model.safetensors")
    assert ["PF10"] == rules(tmp_path)
    save_file({EMBEDDING: np.zeros((32, 8), np.float16), HEAD: np.zeros((32, 8), np.float16)},
              tmp_path / "model.safetensors")  # fmt: skip
    assert [] == rules(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "\x00"])
def test_an_index_that_cannot_be_read_is_left_to_convert(folder: Path, text: str) -> None:
    """A plan says nothing of a broken index: the verb that reads weights says what is wrong with it."""
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")
    assert None is weight_facts(folder, MODEL)


def test_a_folder_of_config_json_alone_is_not_judged(tmp_path: Path) -> None:
    """Planning needs no weights."""
    assert None is weight_facts(tmp_path, MODEL)


def test_an_absent_shard_is_named(folder: Path) -> None:
    """What the index names and nobody downloaded is an error before the first byte."""
    (folder / "b.safetensors").unlink()
    assert ["PF9"] == rules(folder)
