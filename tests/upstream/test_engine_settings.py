"""What every setting of the engine road becomes: nothing that a release took is without a meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.engine_settings import (
    Meaning,
    client_tensors,
    format_of,
    gpu_named,
    is_named,
    meaning,
    meanings,
    nearest_formats,
    old_metrics,
    plain_value,
    served_models,
)
from trtllm_kit.upstream.facts import read_table
from trtllm_kit.upstream.llm_api import llm_api_key
from trtllm_kit.upstream.llm_api_inside import inside_key
from trtllm_kit.upstream.triton import llmapi_tensors, metric_families

PROGRAMS = {
    "convert_checkpoint.py (llama)": "convert",
    "convert_checkpoint.py (qwen)": "convert",
    "convert_checkpoint.py (eagle)": "convert",
    "convert_checkpoint.py (medusa)": "convert",
    "convert_checkpoint.py (redrafter)": "convert",
    "quantize.py": "quantize",
    "trtllm-serve": "serve",
}
MODELS_WITH_CLIENTS = ("ensemble", "tensorrt_llm_bls", "tensorrt_llm")


def option_names(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield every option and long alias, as settings name them."""
    for row in rows:
        for flag in (row["flag"], *row.get("aliases", ())):
            if flag.startswith("--"):
                yield flag.removeprefix("--").replace("-", "_")


def keys_of(schema: dict[str, Any], section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a profile's JSON schema."""
    for name, inner in section.get("properties", {}).items():
        yield f"{prefix}{name}"
        for one in (inner, *inner.get("anyOf", ()), *inner.get("allOf", ())):
            if "$ref" in one:
                named = schema["$defs"][one["$ref"].rpartition("/")[2]]
                yield from keys_of(schema, named, f"{prefix}{name}.")


def test_every_option_of_the_builder_has_a_meaning_of_its_own() -> None:
    """Of every release, options that left it among them: 0.12 to the last with engines."""
    table = read_table("trtllm_build")
    names = set(option_names(table["flags"])) | set(option_names(table["gone"]))

    assert set() == {name for name in names if not is_named("build", name)}
    assert 60 < len(names)


def test_every_field_of_build_config_and_plugin_config_has_a_meaning_of_its_own() -> None:
    """What an engine's config.json holds of them, and what the LLM API's build_config took."""
    fields = {row["field"] for row in read_table("trtllm_build")["fields"]}
    plugins = {
        row["key"].removeprefix("build_config.plugin_config.")
        for row in read_table("llm_api_inside")["keys"]
        if row["key"].startswith("build_config.plugin_config.")
    }

    assert set() == {name for name in fields | plugins if not is_named("build", name)}
    assert 25 < len(plugins)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_of_the_scripts_has_a_meaning_of_its_own(program: str) -> None:
    """Converters, the quantiser, and trtllm-serve."""
    rows = [row for row in read_table("scripts")["flags"] if row["program"] == program]
    reader = PROGRAMS[program]

    assert set() == {name for name in option_names(rows) if not is_named(reader, name)}
    assert rows


def test_every_parameter_of_every_release_has_a_meaning_of_its_own() -> None:
    """Of all models of an inflight_batcher_llm repository."""
    listed = {key for row in read_table("repositories")["parameters"] for key in row["keys"]}
    listed |= {
        row["key"] for part in ("values", "needed", "conflicts") for row in read_table("triton_parameters")[part]
    }

    assert set() == {name for name in listed if not is_named("parameter", name)}


def test_every_field_of_config_pbtxt_has_a_meaning() -> None:
    """Fields of a model's configuration itself, and what stands inside them."""
    fields = {row["key"].removeprefix("ModelConfig.") for row in read_table("model_config")["fields"]}
    of_model = {name for name in fields if "." not in name}

    assert 15 < len(of_model)
    assert set() == {name for name in of_model if meaning("field", name, "x") is None}
    assert set() == {name for name in of_model if meaning("field", f"{name}.inside", "x") is None} - SCALARS


SCALARS = {"name", "platform", "backend", "runtime", "max_batch_size", "default_model_filename"}
"""Fields with nothing inside."""


def test_every_key_of_a_checkpoints_sections_has_a_meaning() -> None:
    """Keys of mapping and quantization that any release takes have a row that is not the one of facts of the model."""
    table = read_table("trtllm_checkpoint")
    keys = {
        f"{row['section']}.{row['key']}"
        for row in (*table["strict_keys"], *table["late_keys"])
        if row["section"] in ("mapping", "quantization")
    }
    found = {name: meaning("checkpoint", name, "x") for name in keys}

    assert 10 < len(keys)
    assert set() == {name for name, row in found.items() if row is None or row.names == ("*",)}


def test_every_key_that_a_setting_becomes_is_one_of_profiles() -> None:
    """A profile without such a key could not be written."""
    schema = DeployProfile.model_json_schema()
    known = set(keys_of(schema, schema))

    assert set() == {row.key for row in meanings() if row.key} - known


def test_every_llm_api_key_that_a_setting_becomes_is_one_of_some_release() -> None:
    """From 1.0 to main."""
    releases = [name for name in known_releases() if name not in OLD]
    wanted = {row.llm for row in meanings() if row.llm}

    def taken(key: str) -> bool:
        return any(llm_api_key(to, key) is not None or inside_key(to, key, "") is not None for to in releases)

    assert set() == {key for key in wanted if not taken(key)}


OLD = tuple(name for name in known_releases() if name.startswith("0."))


def test_what_is_lost_says_what_to_do() -> None:
    """Rows without an equivalent, and approximate ones, name what is lost and the way around it."""
    told = [row for row in meanings() if row.how in ("none", "approximate") and not row.part]

    assert set() == {row.names for row in told if not (row.lost and row.instead)}
    assert set() == {row.names for row in meanings() if row.how == "dropped" and not row.note}


def test_values_in_the_table_are_spelt_as_they_are_looked_up() -> None:
    """A value in other letters would never fit."""
    spelt = {word for row in meanings() for word in (*row.when, *row.unasked)}

    assert set() == {word for word in spelt if plain_value(word) != word and word != "none"}


def test_no_row_stands_behind_one_that_always_fits() -> None:
    """A row after one of the same reader and name for all values would never be read."""
    seen: dict[tuple[str, str], Meaning] = {}
    behind = []
    for row in meanings():
        for place in ((reader, name) for reader in row.reader for name in row.names):
            if place in seen:
                behind.append(place)
            elif not row.when and not row.models:
                seen[place] = row

    assert [] == behind


@pytest.mark.parametrize(
    ("reader", "name", "value", "how"),
    [
        ("build", "kv_cache_type", "paged", "dropped"),
        ("build", "kv_cache_type", "PAGED", "dropped"),
        ("build", "kv_cache_type", "continuous", "approximate"),
        ("build", "context_fmha", "disable", "approximate"),
        ("build", "context_fmha", True, "dropped"),
        ("build", "speculative_decoding_mode", 2, "none"),
        ("build", "speculative_decoding_mode", 1, "dropped"),
        ("parameter", "gpt_model_type", "V1", "approximate"),
        ("triton", "anything_else", 3, "dropped"),
    ],
)
def test_a_value_decides_which_row_holds(reader: str, name: str, value: object, how: str) -> None:
    """The first row that fits the value, in any letter case, as an option or as a key of JSON."""
    row = meaning(reader, name, value)

    assert row is not None
    assert how == row.how


def test_what_nobody_knows_has_no_meaning() -> None:
    """An option that no release took is not given the meaning of another."""
    assert meaning("build", "max_bach_size", 3) is None
    assert meaning("parameter", "kv_cache_fraction", "0.5") is None


def test_an_exact_switch_that_is_off_says_something() -> None:
    """Block reuse that is switched off is a wish; a plugin that is off is none."""
    reuse, logits = (
        meaning("parameter", "enable_kv_cache_reuse", "false"),
        meaning("build", "gather_context_logits", False),
    )

    assert reuse is not None
    assert logits is not None
    assert (False, True) == (reuse.asks_nothing("false"), reuse.asks_nothing(None))
    assert (True, False) == (logits.asks_nothing(False), logits.asks_nothing(True))


def test_a_value_that_a_row_names_says_something() -> None:
    """No row that gives `false` a meaning of its own is passed over as if the setting had not been made."""
    named = [row for row in meanings() if "false" in row.when]

    assert 10 <= len(named)
    assert [] == [row.names for row in named if row.asks_nothing("false")]


@pytest.mark.parametrize("side", ["input", "output"])
def test_every_tensor_that_clients_used_has_a_row(side: str) -> None:
    """Of the ensemble, the script in its place, and the engine's own model, in every release."""
    rows = read_table("triton_engines")["tensors"]
    tensors = {row["name"] for row in rows if row["side"] == side and row["model"] in MODELS_WITH_CLIENTS}
    told = [name for row in client_tensors() if row.side == side for name in row.old]

    assert tensors == set(told)
    assert len(told) == len(set(told))


def test_every_new_tensor_is_one_of_the_llmapi_model() -> None:
    """In the newest release, at the latest."""
    inputs, outputs = llmapi_tensors("main")
    known = {("input", one.name) for one in inputs} | {("output", one.name) for one in outputs} | {("", "")}

    assert set() == {(row.side, row.new) if row.new else ("", "") for row in client_tensors()} - known


def test_every_metric_of_the_old_backend_has_a_row_with_all_its_series() -> None:
    """What trtkit's own model shows besides is no old metric."""
    old = {
        family.name: tuple(one.name for one in family.values if not one.kit_only)
        for family in metric_families()
        if any(not one.kit_only for one in family.values)
    }
    told = {row.old: row.series for row in old_metrics()}

    assert old == {name: told.get(name) for name in old}
    assert {"tensorrt_llm", ""} == set(served_models().values())


def test_number_formats_are_those_of_profiles() -> None:
    """Words of rank files, the quantiser and the converter; GPTQ and QServe are made by none."""
    formats = {row["format"] for row in read_table("engine_settings")["formats"]} - {""}

    assert set() == formats - set(get_args(PartFormat))
    assert ("fp8", "int4_awq", "int8_sq") == (format_of("FP8"), format_of("int4_awq"), format_of("W8A8_SQ_PER_CHANNEL"))
    assert (None, None) == (format_of("W4A16_GPTQ"), format_of("nonsense"))
    assert (("fp8", "int8_wo"), ()) == (nearest_formats("int8_sq"), nearest_formats("bf16"))
    assert formats == {row["format"] for row in read_table("engine_settings")["nearest"]}


def test_gpus_are_named_by_builders_and_by_nodes() -> None:
    """A cluster key of trtllm-build, and the label of a node."""
    assert "NVIDIA H100 SXM 80GB" == gpu_named("H100-SXM") == gpu_named("NVIDIA-H100-80GB-HBM3")
    assert gpu_named("A10G") is None
