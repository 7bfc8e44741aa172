"""All tables as rows of one shape: what ``trtkit upstream`` shows, compares and lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from trtllm_kit.frozen import Frozen
from trtllm_kit.upstream.facts import Certainty, in_range, read_table, spelt_out, version_key
from trtllm_kit.upstream.releases import toolchains

_RANGES = {tool.name: (tool.since, tool.until) for tool in toolchains()}
_LLM_API, _GONE = _RANGES["llm-api"][0], _RANGES["trtllm-build"][1]
"""The first release of the one world, and the first without the other."""
_LLMAPI_MODEL = read_table("releases")["triton_llmapi_model"][0]["since"]
"""The first release whose Triton container has the llmapi model."""
_OF_A_FACT = ("since", "until", "certainty", "source", "read_in")


class Entry(Frozen):
    """One row of a table, in one range of releases."""

    table: str
    key: str
    kind: str = ""
    """What tells rows of one key apart in the same release: a kind of speculation, a program, a world."""
    facts: dict[str, Any]
    """What the row says besides: type, default, values, ..."""
    since: str | None
    until: str | None
    certainty: Certainty
    source: str
    read_in: tuple[str, ...] = ()

    def holds(self, version: str) -> bool:
        """Whether the row speaks of that release."""
        return in_range(version, self.since, self.until)

    def certainty_in(self, version: str) -> Certainty:
        """Return how sure the row is of that release: read in another one's text, it is only near."""
        near = self.certainty == "read" and self.read_in and version not in self.read_in
        return "near" if near else self.certainty


@dataclass(frozen=True)
class Section:
    """One section of a file, which a table is made of."""

    file: str
    section: str
    key: str
    """The field that names a row, or lists the names of several that are alike."""
    kind: tuple[str, ...] = ()
    """Fields that tell apart rows of one name."""
    since: str | None = None
    """The first release of which a row without ``since`` speaks."""
    until: str | None = None
    only: tuple[str, str] | None = None
    """A field and the value that rows must have to be meant."""


@dataclass(frozen=True)
class Table:
    """One table, as ``trtkit upstream list`` names it."""

    name: str
    about: str
    sections: tuple[Section, ...]


TABLES = (
    Table("llm-api", "keys of the LLM API's YAML document, nested ones dotted", (
        Section("llm_api", "keys", "key", since=_LLM_API),
        Section("llm_api_inside", "keys", "key", ("kind", "backend"), since=_LLM_API),
        Section("llm_api_early", "keys", "key"),
        Section("llm_api_early", "kinds", "key", ("kind",)),
    )),
    Table("trtllm-build", "options of trtllm-build and fields of its BuildConfig", (
        Section("trtllm_build", "flags", "flag", until=_GONE),
        Section("trtllm_build", "fields", "field", ("section",), until=_GONE),
    )),
    Table("scripts", "options of scripts around engines, of what starts them, of trtllm-serve, -bench and -eval", (
        Section("scripts", "flags", "flag", ("program",)),
        Section("launchers", "flags", "flag", ("program", "section")),
    )),
    Table("speculation", "kinds of speculative decoding, their words and what drafting keeps in memory", (
        Section("llm_api_inside", "keys", "kind", since=_LLM_API, only=("key", "speculative_config.decoding_type")),
        Section("llm_api_early", "kinds", "kind", only=("key", "speculative_config.decoding_type")),
        Section("trtllm_build", "modes", "mode", until=_GONE),
        Section("speculation", "literals", "literal", ("kind",), since=_LLM_API),
        Section("speculation", "kv_layers", "kind", since=_LLM_API),
        Section("speculation", "gate", "threshold", since=_LLM_API),
        Section("speculation", "drafts", "architecture", since=_LLM_API),
    )),
    Table("precision", "number formats by GPU generation", (
        Section("precision", "precision", "format", ("part", "layout")),
        Section("quant_algos", "algos", "algo", ("format", "layout")),
        Section("quant_algos", "unread", "scheme", ()),
        Section("quant_methods", "methods", "method", ("scheme",)),
        Section("model_formats", "listed", "architecture", ("part",)),
    )),
    Table("families", "architectures that a release loads, by world", (
        Section("families", "families", "architecture", ("world",)),
        Section("families_listed", "families", "architecture", ("world",)),
        Section("families", "attention_dp", "architecture", ("section",), since=_LLM_API),
        Section("families", "context_parallel", "architecture", ("section",), until=_GONE),
    )),
    Table("checkpoint", "what the checkpoint of trtllm-build may hold", (
        Section("trtllm_checkpoint", "models", "architecture", until=_GONE),
        Section("trtllm_checkpoint", "strict_keys", "key", ("section",), until=_GONE),
        Section("trtllm_checkpoint", "formats", "format", until=_GONE),
        Section("trtllm_checkpoint", "kv_scales", "part", until=_GONE),
        Section("trtllm_checkpoint", "rope_kinds", "kind", until=_GONE),
    )),
    Table("combinations", "features that do not go together", (Section("combinations", "combinations", "name"),)),
    Table("failures", "what was seen to fail", (Section("failures", "failures", "name"),)),
    Table("rewrites", "what a release makes of settings without a word", (Section("rewrites", "rewrites", "name"),)),
    Table("defaults", "what a release does where a document says nothing, and words that became other words", (
        Section("defaults", "choices", "key", ("name",)),
        Section("defaults", "words", "key", ("old",)),
    )),
    Table("precedence", "which setting wins where two say something, and which key an option of trtllm-serve sets", (
        Section("precedence", "orders", "name"),
        Section("precedence", "options", "option", since=_LLM_API),
    )),
    Table("environment", "environment variables of the server", (Section("environment", "variables", "name"),)),
    Table("triton", "tensors of the llmapi model, and the metric families of Triton's TensorRT-LLM backend", (
        Section("triton_llmapi", "inputs", "name", ("section",), since=_LLMAPI_MODEL),
        Section("triton_llmapi", "outputs", "name", ("section",), since=_LLMAPI_MODEL),
        Section("triton_llmapi", "metric_families", "name"),
    )),
    Table("metrics", "metric families of trtllm-serve and of Triton itself", (
        Section("metrics", "families", "name", ("server", "path")),
    )),
    Table("deployment", "flags of tritonserver, labels of nodes, objects of a cluster, Dynamo, GPU counters", (
        Section("deployment", "flags", "name", ("section",)),
        Section("deployment", "products", "name", ("section",)),
        Section("deployment", "kinds", "name", ("section",)),
        Section("deployment", "dynamo", "name", ("section",)),
        Section("deployment", "counters", "name", ("section",)),
    )),
    Table("releases", "releases, what they were built with, and the containers that hold them", (
        Section("releases", "releases", "version"),
        Section("stack", "releases", "version", ("section",)),
        Section("stack", "containers", "tag"),
        Section("stack", "drivers", "version", ("section",)),
    )),
    Table("repositories", "parameters that the models of an inflight_batcher_llm repository read, fields of a config", (
        Section("repositories", "parameters", "keys", ("model",)),
        Section("triton_parameters", "values", "key", ("model", "section")),
        Section("triton_parameters", "needed", "key", ("section",)),
        Section("triton_parameters", "conflicts", "key", ("backend", "section")),
        Section("model_config", "fields", "key"),
        Section("triton_engines", "tensors", "name", ("model", "side"), until=_GONE),
        Section("triton_engines", "fixed", "name", ("section",), until=_GONE),
        Section("triton_engines", "steps", "model", ("side", "section"), until=_GONE),
    )),
    Table("builder", "what the builder makes of its options, and which it refuses together", (
        Section("builder", "rules", "name", until=_GONE),
        Section("builder", "bounds", "option", ("mode",), until=_GONE),
        Section("builder", "conflicts", "name", until=_GONE),
    )),
    Table("build-errors", "what messages of the builder mean, and the phases that its log names", (
        Section("build_errors", "errors", "name", until=_GONE),
        Section("build_errors", "signals", "name", ("section",), until=_GONE),
        Section("build_errors", "phases", "name", ("section",), until=_GONE),
    )),
    Table("bounds", "single numbers beyond which something was seen to fail", (Section("bounds", "bounds", "name"),)),
    Table("memory", "what the runtime takes besides weights and KV cache", (
        Section("memory", "activations", "kind", ("section",)),
        Section("memory", "buffers", "name", ("section",)),
        Section("memory", "retention", "attention", ("section",)),
        Section("memory", "indexer_keys", "layout", ("section",)),
    )),
)  # fmt: skip


def table_names() -> tuple[str, ...]:
    """Return the names of all tables, in their order."""
    return tuple(table.name for table in TABLES)


@cache
def entries(table: str) -> tuple[Entry, ...]:
    """Return every row of a table, a family's label values as rows of their own."""
    found = next(one for one in TABLES if one.name == table)
    return tuple(entry for section in found.sections for entry in _of_section(table, section))


def all_entries() -> Iterator[Entry]:
    """Yield every row of every table."""
    for table in TABLES:
        yield from entries(table.name)


def _of_section(table: str, section: Section) -> Iterator[Entry]:
    document = read_table(section.file)
    for raw in document[section.section]:
        if section.only is not None and raw.get(section.only[0]) != section.only[1]:
            continue
        for row in _one_by_one(spelt_out(raw, document), section.key):
            yield from _of_row(table, section, row, document)


def _one_by_one(row: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each name, where the row lists several."""
    names = row[key] if isinstance(row[key], list | tuple) else [row[key]]
    for name in names:
        yield {**row, key: name}


def _of_row(table: str, section: Section, row: dict[str, Any], document: dict[str, Any]) -> Iterator[Entry]:
    inner = row.pop("values", ()) if isinstance(row.get("label"), str) else ()
    whole = _entry(table, section, row, str(row[section.key]), row)
    yield whole
    for raw_value in inner:
        value = spelt_out(raw_value, document)
        yield _entry(table, section, value, f"{whole.key}{{{row['label']}={value['name']}}}", row)


def _entry(table: str, section: Section, row: dict[str, Any], key: str, around: dict[str, Any]) -> Entry:
    named = (*_OF_A_FACT, section.key, *section.kind)
    kinds = (section.section if name == "section" and name not in row else row.get(name) for name in section.kind)
    return Entry(
        table=table,
        key=key,
        kind=" ".join(str(kind) for kind in kinds if kind),
        facts={name: value for name, value in row.items() if name not in named},
        since=_later(row.get("since"), _later(around.get("since"), section.since)),
        until=_earlier(row.get("until"), _earlier(around.get("until"), section.until)),
        certainty=row["certainty"],
        source=row["source"],
        read_in=row.get("read_in", ()),
    )


def _later(one: str | None, other: str | None) -> str | None:
    return max((bound for bound in (one, other) if bound is not None), key=version_key, default=None)


def _earlier(one: str | None, other: str | None) -> str | None:
    return min((bound for bound in (one, other) if bound is not None), key=version_key, default=None)
