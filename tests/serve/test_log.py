"""What of the server's log says something. The lines were recorded from Triton 2.51 on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_kit.serve.log import reason, tail

NOISE = """\
W1129 23:18:46.982007 24493 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool \
will not be available: CUDA driver version is insufficient for CUDA runtime version"
I1129 23:18:46.982090 24493 cuda_memory_manager.cc:117] "CUDA memory pool disabled"
E1129 23:18:46.982114 24493 server.cc:241] "CudaDriverHelper has not been initialized."
I1129 23:18:47.179848 24493 server.cc:674]
+--------------+---------+--------+
| Model        | Version | Status |
+--------------+---------+--------+

Error: Failed to initialize NVML
W1129 23:18:47.380342 24493 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
"""
LOAD = (
    "E1129 23:18:47.378659 24493 backend_model.cc:692] "
    '"ERROR: Failed to create instance: ModelNotFound: error[KIT-MODEL-001]: /c has no tokenizer.json\\n'
    '  because: the kit reads fast tokenizers only\\n  try: save one\\n\\nAt:\\n  /x/load.py(50): load_tokenizer\\n"'
)
OURS = (
    "E1129 23:18:49.172215 24588 model_lifecycle.cc:642] "
    "\"failed to load 'tensorrt_llm' version 1: Internal: TritonModelException: parameter runtime is 'magic'\""
)
PROTOBUF = (
    "[libprotobuf ERROR /tmp/x/text_format.cc:337] Error parsing text-format inference.ModelConfig: "
    "48:1: Expected identifier, got: }"
)
POLL = "E1129 23:18:50.377770 24625 repo.cc:1460] \"Poll failed for model directory 'tensorrt_llm'\""
END = "error: creating server: Internal - failed to load all models"


def write(folder: Path, *lines: str) -> Path:
    """Write a log: the noise of every start, then these lines."""
    path = folder / "server.log"
    path.write_text(NOISE + "".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            (LOAD, END),
            "ModelNotFound: error[KIT-MODEL-001]: /c has no tokenizer.json; because: the kit reads fast tokenizers "
            "only; try: save one",
        ),
        ((OURS, END), "parameter runtime is 'magic'"),
        ((POLL, PROTOBUF, END), "Error parsing text-format inference.ModelConfig: 48:1: Expected identifier, got: }"),
        (
            ("[TensorRT-LLM] version", "malloc(): unaligned tcache chunk detected"),
            "malloc(): unaligned tcache chunk detected",
        ),
        ((), None),
    ],
)
def test_the_reason_is_in_plain_words(tmp_path: Path, lines: tuple[str, ...], expected: str | None) -> None:
    """The model's own words come first, then what Triton says last; a log of noise gives no reason."""
    assert expected == reason(write(tmp_path, *lines))


def test_the_tail_leaves_out_the_noise(tmp_path: Path) -> None:
    """Only lines that say something are shown, the last ones, cut to a readable width."""
    assert () == tail(write(tmp_path))
    assert ("x" * 240 + " ...", END) == tail(write(tmp_path, "first", "x" * 500, END), 2)


def test_no_log_is_an_empty_log(tmp_path: Path) -> None:
    """A server that never wrote has nothing to show, and that is no error."""
    assert ((), None) == (tail(tmp_path / "none"), reason(tmp_path / "none"))


def test_a_huge_log_is_read_from_its_end(tmp_path: Path) -> None:
    """Of a log of many megabytes only the end is read, also when it cuts a character in two."""
    path = tmp_path / "server.log"
    path.write_bytes("é".encode() * (1 << 20) + b"\nthe end\n")

    assert ("the end",) == tail(path, 1)
