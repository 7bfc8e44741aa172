"""What speaks against combinations, against the recorded feature matrices; and the single numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trtllm_kit.upstream.bounds import bound
from trtllm_kit.upstream.combinations import Name, combination


def test_1_2_1_marks_chunked_prefill_with_pipeline_as_untested(shared: Path) -> None:
    """The pair stands in that release's own feature matrix."""
    document = yaml.safe_load((shared / "contract" / "llmapi-1.2.1.yaml").read_text("utf-8"))
    assert ["Chunked Prefill", "Pipeline Parallelism"] in document["feature_matrix"]["Untested"]
    found = combination("chunked_prefill_with_pipeline", "1.2.1")
    assert found is not None
    assert ("read", "are marked as untested") == (found.certainty, found.note)


def test_1_0_and_1_1_mark_windows_with_reuse_as_unfinished(shared: Path) -> None:
    """Work in progress in both matrices, a plain yes in that of 1.2.1."""
    recorded = (shared / "contract" / "llmapi-1.1.0.yaml").read_text("utf-8")
    assert ["sliding window x KV reuse"] == yaml.safe_load(recorded)["feature_matrix_1_1_0"]["WIP"]
    found = combination("block_reuse_with_sliding_window", "1.1.0")
    assert found is not None
    assert "read" == found.certainty


@pytest.mark.parametrize("name", ["nvfp4_kv_cache_without_fp8_weights", "nvfp4_kv_cache_without_its_variable"])
def test_what_is_known_of_an_nvfp4_cache_begins_with_1_2_and_is_near(name: Name) -> None:
    """Releases before have no such cache, and what speaks against it was not read in a release's own matrix."""
    found = {version: combination(name, version) for version in ("1.1.0", "1.2.1", "main")}
    assert {"1.1.0": None, "1.2.1": "near", "main": "near"} == {
        version: row and row.certainty for version, row in found.items()
    }


@pytest.mark.parametrize(
    ("version", "certainty"), [("1.0.2", "near"), ("1.2.1", "near"), ("1.3.0rc11", "near"), ("1.3.0rc12", None)]
)
def test_what_was_seen_in_other_releases_is_near(version: str, certainty: str | None) -> None:
    """A failure report speaks of the releases it names, and of none after the last of them."""
    found = combination("block_reuse_with_sliding_window", version)
    assert certainty == (found and found.certainty)


def test_the_bounds() -> None:
    """Head sizes in steps of 8, beams up to 16, 95 % of the free memory, blocks of 16; none is read in a release."""
    names = ("head_size_step", "beam_width", "free_gpu_memory_fraction", "nvfp4_input_step")
    assert [8, 16, 0.95, 16] == [bound(name).value for name in names]
    assert {"near"} == {bound(name).certainty for name in names}
