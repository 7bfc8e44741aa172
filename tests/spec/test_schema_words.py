"""A JSON schema in words."""

from __future__ import annotations

import pytest

from trtllm_kit.spec.load import profile_schema
from trtllm_kit.spec.schema_words import Path, SchemaWords

WORDS = SchemaWords(profile_schema())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("schema_version",), "1"),
        (("trtllm_version",), "text such as 1.2.1, main"),
        (("toolchain",), "one of llm-api, trtllm-build, mock or auto"),
        (("gpu_memory",), "a whole number or text such as 24 GiB, 80GB"),
        (("scheduler", "policy"), "one of guaranteed_no_evict, max_utilization"),
        (("quantization", "exclude"), "a list of text"),
        (("quantization", "exclude", 0), "text"),
        (("parallelism", "tensor"), "a whole number of 1 or more or auto"),
        (("serve", "http_port"), "a whole number from 1 to 65535"),
        (("serve", "start_grace"), "a number or text such as 250ms, 2 min"),
        (("kv_cache", "free_gpu_memory_fraction"), "a number above 0 and below 1"),
        (("kv_cache", "enable_block_reuse"), "true or false"),
        (("scheduler",), "a mapping with keys of policy, chunked_prefill"),
        (("environment",), "a mapping of names to text"),
        (("environment", "ANY"), "text"),
        (("build", "timeout"), "a number above 0 or text such as 90 min, 6 h"),
        (
            ("build", "options"),
            "a mapping of names to true or false or a whole number or text or a list of text",
        ),
        (("alerts", "any", "severity"), "one of warning, critical"),
        (("alerts", "any", "samples"), "a whole number of 1 or more"),
    ],
)
def test_what_a_value_may_be(path: Path, words: str) -> None:
    """Types, limits, alternatives and examples of the profile's own schema read as words."""
    assert words == WORDS.allowed(path)


def test_keys_choices_and_homes() -> None:
    """A section's keys, the words of an enumeration, and where a stray key belongs."""
    assert ("policy", "chunked_prefill") == WORDS.keys(("scheduler",))
    assert ("llm-api", "trtllm-build", "mock", "auto") == WORDS.choices(("toolchain",))
    assert ("limits.max_batch_size",) == WORDS.homes("max_batch_size")
    assert (True, False, False) == tuple(WORDS.takes_text((key,)) for key in ("trtllm_version", "runtime", "limits"))
