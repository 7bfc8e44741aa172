"""Rules about an LLM-API document that somebody else wrote: keys, cache, metrics, drafts (PF23, PF24, PF25)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.llm_api import (
    keys_taken,
    refuses_unknown,
    releases_read,
    releases_with_key,
    unknown_llm_api_keys,
)
from trtllm_kit.upstream.llm_api_inside import TAGS, kinds_of
from trtllm_kit.upstream.precedence import precedence
from trtllm_kit.upstream.renames import renamed, taken_before

_METRICS = ("return_perf_metrics", "enable_iter_perf_stats")
_THRESHOLDS = ("acceptance_length_threshold", "acceptance_rate_threshold")


def document(
    given: Mapping[str, Any], release: str, *, command_line: Mapping[str, Any] | None = None, scraped: bool = False
) -> Iterator[Finding]:
    """Run every rule about an LLM-API document.

    ``command_line`` holds what is also given as an option, by the name of the key; ``scraped`` is whether somebody
    reads metrics of trtllm-serve.
    """
    yield from keys(given, release)
    yield from _graphs(given, release)
    yield from _cache(given, release)
    yield from _speculation(given, release)
    yield from _precedence(given, release, command_line or {})
    if scraped:
        yield from metrics(given, release)


def keys(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    """PF24: keys that the release does not take, with the nearest that it does."""
    taken = sorted(set(keys_taken(release)))
    for key in unknown_llm_api_keys(release, given):
        section, _, name = key.rpartition(".")
        if TAGS.get(section) == name:
            yield _kind(section, name, _section(given, section).get(name), release)
            continue
        surely, refuses = _was_read(release, key), refuses_unknown(release, key)
        if not surely and taken_before(key, release):
            continue
        near = difflib.get_close_matches(key, taken, n=1, cutoff=0.75)
        others = releases_with_key(key)
        known = f"the key is in {', '.join(others)}" if others else "no release that was read has it"
        became = renamed(key, release)
        if became is not None:
            known = f"{key} {became.message}"
        doubt = "" if surely else "; not confirmed for this release"
        yield found(
            "PF24",
            Severity.ERROR if surely and refuses else Severity.WARNING,
            f"Release {release} does not take {key}, and "
            + ("refuses a document with it." if refuses else "reads on without a word."),
            known + doubt,
            _instead(key, became.new if became else "", near if became is None else []),
        )


def _was_read(release: str, key: str) -> bool:
    """Whether the release's own keys were read, at the place of a dotted key."""
    return release in releases_read() or ("." not in key and release in releases_read(early=True))


def _kind(section: str, tag: str, value: object, release: str) -> Finding:
    """Say that a section, whose keys depend on its kind, is of none that the release has."""
    kinds, surely = kinds_of(release, section), release in releases_read()
    near = difflib.get_close_matches(str(value), kinds, n=1, cutoff=0.3)
    return found(
        "PF24",
        Severity.ERROR if surely else Severity.WARNING,
        f"{section} is of no kind that release {release} has.",
        f"{tag} {'absent' if value is None else value}; it has {', '.join(kinds)}"
        + ("" if surely else "; not confirmed for this release"),
        f"{tag}: {near[0] if near else kinds[0]}",
    )


def metrics(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    """PF23: metrics that somebody reads and that the document leaves switched off."""
    known = failure("metrics_switched_off", release)
    off = [key for key in _METRICS if given.get(key) is not True]
    if known is not None and off:
        yield of_failure(
            "PF23",
            known,
            f"The metrics endpoint of trtllm-serve {known.note}.",
            f"{' and '.join(off)} not true",
            ", ".join(f"{key}: true" for key in off),
        )


def _graphs(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    section, known = _section(given, "cuda_graph_config"), failure("two_graph_lists", release)
    sizes, largest = section.get("batch_sizes"), section.get("max_batch_size")
    if known is None or not largest or not _are_numbers(sizes):
        return
    equal = max(sizes) == largest
    if equal and "unless" in known.note:
        return
    yield of_failure(
        "PF24",
        known,
        f"batch_sizes and max_batch_size of cuda_graph_config {known.note}.",
        f"batch_sizes up to {max(sizes)}, max_batch_size {largest}",
        "leave cuda_graph_config.max_batch_size out",
    )


def _cache(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    cache = _section(given, "kv_cache_config")
    reuses, grammar = cache.get("enable_block_reuse", True) is True, given.get("guided_decoding_backend")
    cases = (
        ("offload_with_reuse", reuses and bool(cache.get("host_cache_size")), "A host cache with block reuse",
         f"host_cache_size {cache.get('host_cache_size')}, enable_block_reuse true",
         "kv_cache_config.enable_block_reuse: false"),
        ("grammar_with_reuse", reuses and bool(grammar), "Guided decoding with block reuse",
         f"guided_decoding_backend {grammar}, enable_block_reuse true",
         "kv_cache_config.enable_block_reuse: false"),
        ("cache_manager_v2", cache.get("use_kv_cache_manager_v2") is True, "The second KV cache manager",
         "use_kv_cache_manager_v2 true", "kv_cache_config.use_kv_cache_manager_v2: false"),
    )  # fmt: skip
    for name, applies, what, compared, way_out in cases:
        known = failure(name, release)
        if applies and known is not None:
            yield of_failure("PF23", known, f"{what} {known.note} in releases like {release}.", compared, way_out)


def _speculation(given: Mapping[str, Any], release: str) -> Iterator[Finding]:
    section = _section(given, "speculative_config")
    trees, eagle = failure("draft_trees", release), failure("eagle_is_eagle3", release)
    if section.get("eagle_choices") and trees is not None:
        yield of_failure(
            "PF25", trees, f"Trees of drafts {trees.note} in releases like {release}.", "eagle_choices is set",
            "leave eagle_choices out: a chain of max_draft_len",
        )  # fmt: skip
    if section.get("decoding_type") == "Eagle" and eagle is not None:
        yield found(
            "PF25",
            Severity.INFO,
            f"decoding_type Eagle {eagle.note} on the PyTorch backend: a draft model of EAGLE 1 or 2 gives gibberish.",
            "decoding_type Eagle",
            "a draft model made for EAGLE-3",
        )
    if section.get("eagle3_one_model") is False:
        forced = failure("two_models_forced", release)
        if forced is not None:
            message = f"A draft model of its own {forced.note} in releases like {release}."
            yield of_failure("PF25", forced, message, "eagle3_one_model false", "leave eagle3_one_model out")
    yield from _suffixes(given, section, release)
    yield from _ignored(section, release)
    yield from _thresholds(section, release)


def _suffixes(given: Mapping[str, Any], section: Mapping[str, Any], release: str) -> Iterator[Finding]:
    """Yield lengths and pools that the suffix automaton does not take."""
    if section.get("decoding_type") != "SA":
        return
    length, nothing = section.get("max_matching_ngram_size"), failure("suffix_of_nothing", release)
    if nothing is not None and length == 0 and not isinstance(length, bool):
        message = f"A match of no tokens {nothing.note}."
        yield of_failure("PF25", nothing, message, "max_matching_ngram_size 0", "max_matching_ngram_size: -1 (longest)")
    pool, batch = section.get("global_pool_size"), given.get("max_batch_size")
    small = failure("suffix_pool_too_small", release)
    if small is not None and isinstance(pool, int) and isinstance(batch, int) and pool < batch:
        message = f"A pool with fewer places than requests {small.note}."
        compared = f"global_pool_size {pool}, max_batch_size {batch}"
        yield of_failure("PF25", small, message, compared, f"global_pool_size: {batch}")


def _ignored(section: Mapping[str, Any], release: str) -> Iterator[Finding]:
    known, others = failure("auto_ignores", release), [name for name in section if name != "decoding_type"]
    if section.get("decoding_type") == "AUTO" and known is not None and others:
        yield found(
            "PF25",
            Severity.INFO,
            f"decoding_type AUTO {known.note}: the release chooses how to draft, and how much.",
            f"AUTO beside {', '.join(others)}",
            "decoding_type: NGram, to choose for yourself",
        )


def _thresholds(section: Mapping[str, Any], release: str) -> Iterator[Finding]:
    known = failure("speculation_off_for_good", release)
    for name in _THRESHOLDS:
        value = section.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or known is None:
            continue
        if name == "acceptance_rate_threshold" and not 0 <= value <= 1:
            yield found(
                "PF25",
                Severity.ERROR,
                f"{name} is a share.",
                f"{name} {value}, from 0 to 1",
                f"{name}: {value / 100:g}",
            )
        yield found(
            "PF25",
            Severity.INFO,
            f"Once acceptance falls below {name}, speculation {known.note}.",
            f"{name} {value}",
            "watch the acceptance metric, and start the server again",
        )


def _precedence(given: Mapping[str, Any], release: str, options: Mapping[str, Any]) -> Iterator[Finding]:
    order = precedence(release)
    for key, value in options.items():
        if order is None or key not in given or given[key] == value:
            continue
        wins = "the YAML" if order.yaml_wins else "the command line"
        doubt = "" if order.certainty == "read" else "; not confirmed for this release"
        yield found(
            "PF24",
            Severity.WARNING,
            f"{key} is given twice and differs; in release {release} {wins} wins.",
            f"YAML {given[key]}, command line {value}{doubt}",
            f"give {key} in one place",
        )


def _are_numbers(sizes: object) -> TypeGuard[list[int]]:
    return isinstance(sizes, list) and bool(sizes) and all(isinstance(one, int) for one in sizes)


def _instead(key: str, new: str, near: list[str]) -> str:
    named = new or (near[0] if near else "")
    return f"write {named}" if named else f"leave {key} out"


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name)
    return value if isinstance(value, Mapping) else {}
