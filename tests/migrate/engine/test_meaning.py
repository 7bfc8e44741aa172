"""Each setting of the engine road as a row: what it becomes, what is lost, what it says only beside others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.migrate.engine.settings import found_of, only_row
from trtllm_kit.migrate.engine.chosen import assumed
from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.found import Reader
from trtllm_kit.upstream.engine_settings import runtime_defaults

BUILD, ENGINE, CONVERT, QUANTIZE = Reader.BUILD, Reader.ENGINE, Reader.CONVERT, Reader.QUANTIZE
PARAMETER, FILL, FIELD, ENV = Reader.PARAMETER, Reader.FILL, Reader.FIELD, Reader.ENVIRONMENT


@pytest.mark.parametrize(
    ("one", "key", "value"),
    [
        ((BUILD, "max_batch_size", 64), "limits.max_batch_size", 64),
        ((BUILD, "max_seq_len", "4096"), "limits.max_seq_len", 4096),
        ((ENGINE, "build_config.max_num_tokens", 8192), "limits.max_num_tokens", 8192),
        ((ENGINE, "build_config.plugin_config.tokens_per_block", 64), "kv_cache.tokens_per_block", 64),
        ((ENGINE, "pretrained_config.mapping.tp_size", 4), "parallelism.tensor", 4),
        ((Reader.CHECKPOINT, "mapping.pp_size", 2), "parallelism.pipeline", 2),
        ((CONVERT, "moe_ep_size", 2), "parallelism.expert", 2),
        ((QUANTIZE, "calib_size", 256), "calibration.samples", 256),
        (
            (PARAMETER, "kv_cache_free_gpu_mem_fraction", "0.85", "tensorrt_llm"),
            "kv_cache.free_gpu_memory_fraction",
            0.85,
        ),
        (
            (PARAMETER, "max_attention_window_size", "4096, 8192,", "tensorrt_llm"),
            "kv_cache.max_attention_window",
            [4096, 8192],
        ),
        (
            (PARAMETER, "batch_scheduler_policy", "max_utilization", "tensorrt_llm"),
            "scheduler.policy",
            "max_utilization",
        ),
        ((PARAMETER, "enable_kv_cache_reuse", "FALSE", "tensorrt_llm"), "kv_cache.enable_block_reuse", False),
        ((FILL, "enable_chunked_context", "true", "tensorrt_llm"), "scheduler.chunked_prefill", True),
        ((Reader.LAUNCHER, "http_port", 9000), "serve.http_port", 9000),
        ((Reader.TRITON, "grpc_address", "0.0.0.0"), "serve.host", "0.0.0.0"),
        ((Reader.SERVE, "ep_size", "4"), "parallelism.expert", 4),
        ((Reader.CONTAINER, "memory", "64Gi"), "deploy.memory", 64 << 30),
        ((Reader.CONTAINER, "memory", "64G"), "deploy.memory", 64 * 10**9),
        ((Reader.CONTAINER, "memory", "64g"), "deploy.memory", 64 << 30),
        ((Reader.CONTAINER, "cpu", "3500m"), "deploy.cpu", 4),
        ((Reader.CONTAINER, "cpu", 8), "deploy.cpu", 8),
        ((FIELD, "instance_group[0].count", 3, "tensorrt_llm"), "parallelism.replicas", 3),
        ((ENV, "NCCL_DEBUG", "INFO"), "environment.NCCL_DEBUG", "INFO"),
        ((ENV, "MY_OWN", True), "environment.MY_OWN", "true"),
        ((ENV, "HUB", {"secretKeyRef": {"name": "hub", "key": "token"}}), "deploy.secret_environment.HUB", "hub/token"),
    ],
)
def test_a_setting_with_an_equal_becomes_it(one: tuple[Any, ...], key: str, value: object) -> None:
    """Exactly, with the value in a profile's spelling."""
    row = only_row(one)

    assert ("exact", key, value) == (row.how, row.key, row.value)


@pytest.mark.parametrize(
    ("one", "llm", "value"),
    [
        ((BUILD, "max_lora_rank", 8), "lora_config.max_lora_rank", 8),
        ((BUILD, "lora_dir", ["one", "two"]), "lora_config.lora_dir", ["one", "two"]),
        ((PARAMETER, "max_tokens_in_paged_kv_cache", "4000", "tensorrt_llm"), "kv_cache_config.max_tokens", 4000),
        (
            (PARAMETER, "lora_cache_host_memory_bytes", "1000", "tensorrt_llm"),
            "peft_cache_config.host_cache_size",
            1000,
        ),
        ((PARAMETER, "guided_decoding_backend", "xgrammar", "tensorrt_llm"), "guided_decoding_backend", "xgrammar"),
    ],
)
def test_what_profiles_have_no_key_of_becomes_one_of_the_llm_api(one: tuple[Any, ...], llm: str, value: object) -> None:
    """It stands in llm_args.yaml alone."""
    row = only_row(one)

    assert ("exact", "", llm, value) == (row.how, row.key, row.llm, row.value)


def test_limits_are_named_where_the_release_looks_for_them() -> None:
    """Under build_config in 1.0, at the top level from 1.2 on."""
    one = (BUILD, "max_batch_size", 64)

    assert ["build_config.max_batch_size", "max_batch_size"] == [only_row(one, to=to).llm for to in ("1.0.0", "1.2.1")]


def test_a_key_that_the_release_does_not_take_is_no_equivalent() -> None:
    """lora_config.lora_ckpt_source is taken by 1.2.1 and not by 0.20."""
    late, early = (only_row((BUILD, "lora_ckpt_source", "hf"), to=release) for release in ("1.2.1", "0.20.0"))

    assert ("exact", "hf") == (late.how, late.value)
    assert ("none", None, True) == (early.how, early.value, "0.20.0 does not take" in early.lost)


@pytest.mark.parametrize("name", ["gather_context_logits", "weight_streaming", "weight_sparsity"])
def test_what_has_no_equivalent_says_what_is_lost_and_what_to_do(name: str) -> None:
    """And writes nothing; switched off it is dropped without a loss."""
    on, off = only_row((BUILD, name, True)), only_row((BUILD, name, False))

    assert ("none", None, True) == (on.how, on.value, bool(on.lost and on.instead))
    assert ("dropped", "", "") == (off.how, off.lost, off.instead)


@pytest.mark.parametrize(
    ("one", "how", "lost"),
    [
        ((PARAMETER, "decoupled_mode", "False", "tensorrt_llm"), "approximate", "/infer"),
        ((Reader.FIELD, "model_transaction_policy.decoupled", False, "ensemble"), "approximate", "/infer"),
        ((PARAMETER, "skip_special_tokens", "False", "postprocessing"), "approximate", "left out"),
        ((PARAMETER, "add_special_tokens", "0", "preprocessing"), "approximate", "adds them"),
        ((PARAMETER, "kv_cache_onboard_blocks", "false", "tensorrt_llm"), "none", "host"),
        ((PARAMETER, "normalize_log_probs", "true", "tensorrt_llm"), "approximate", "sum"),
        ((BUILD, "paged_kv_cache", "disable"), "approximate", "paged"),
        ((BUILD, "context_fmha", "disable"), "approximate", "unfused"),
        ((BUILD, "gpt_attention_plugin", "disable"), "approximate", "slower"),
        ((Reader.TRITON, "allow_metrics", "false"), "none", "open"),
    ],
)
def test_a_switch_that_was_off_and_is_on_now_is_told_of(one: tuple[Any, ...], how: str, lost: str) -> None:
    """What it asked for is lost, so that its row is none of the dropped ones."""
    row = only_row(one)

    assert how == row.how
    assert lost in row.lost
    assert row.instead


@pytest.mark.parametrize(
    ("layers", "how", "lost"),
    [
        (["lm_head"], "dropped", ""),
        (["lm_head", "transformer.vocab_embedding", "transformer.layers.3.mlp.router", "*lm_head"], "dropped", ""),
        ([], "dropped", ""),
        (["lm_head", "transformer.layers.0.attention.qkv"], "approximate", "1 layer in 16 bit: transformer.layers.0"),
        ([f"transformer.layers.{one}.mlp.fc" for one in range(9)], "approximate", "9 layers in 16 bit: transformer."),
    ],
)
def test_layers_that_were_left_in_16_bit_are_lost_where_no_default_keeps_them(
    layers: list[str], how: str, lost: str
) -> None:
    """The head, embeddings and routers are quantised by nobody."""
    row = only_row((Reader.CHECKPOINT, "quantization.exclude_modules", layers))

    assert (how, True) == (row.how, row.lost.startswith(lost))
    assert bool(lost) == bool(row.lost)


def test_a_model_of_ones_own_and_its_step_are_lost() -> None:
    """Its backend and the ensemble's step say so; models of an engine under other names are told by what they are."""
    own, engine, python = ("guard", "onnxruntime"), ("llama", "tensorrtllm"), ("tokens", "python")
    settings = [(Reader.FIELD, "backend", backend, model) for model, backend in (own, engine, python)]
    steps = [(Reader.FIELD, "ensemble_scheduling.step", model, "ensemble") for model in ("guard", "llama", "tokens")]
    found = found_of(
        *settings, *steps, (PARAMETER, "tokenizer_dir", "/m", "tokens"), (Reader.FIELD, "max_batch_size", 4, "guard"),
        (PARAMETER, "secret", "1", "guard"),
    )  # fmt: skip
    rows = rows_of(found, "1.2.1")

    lost = ["none", "dropped", "dropped"]
    assert [*lost, *lost, "dropped", "dropped", "dropped"] == [row.how for row in rows]
    assert all("of your own" in rows[place].means for place in (0, 3, 7, 8))
    assert ["copy its folder" in rows[0].instead, "the step" in rows[3].lost] == [True, True]


@pytest.mark.parametrize(("to", "how", "value"), [("1.0.0", "none", None), ("1.1.0", "exact", 128)])
def test_a_profiles_key_that_the_release_cannot_write_is_lost(to: str, how: str, value: int | None) -> None:
    """The plan would refuse the profile that has it."""
    row = only_row((BUILD, "tokens_per_block", 128), to=to)

    assert (how, value) == (row.how, row.value)
    assert (how == "none") == ("kv_cache_config.tokens_per_block" in row.lost)


@pytest.mark.parametrize(("to", "how"), [("1.2.1", "approximate"), ("main", "exact")])
def test_adapters_that_no_request_can_name_are_a_loss(to: str, how: str) -> None:
    """The key is written all the same: trtllm-serve takes them."""
    row = only_row((BUILD, "lora_plugin", "bfloat16"), to=to)

    assert (how, True, how == "approximate") == (row.how, row.value, "a tensor that names an adapter" in row.lost)


def test_an_unfilled_placeholder_is_dropped_for_the_default_held() -> None:
    """It asks for nothing, whatever the parameter."""
    row = only_row((PARAMETER, "enable_kv_cache_reuse", None, "tensorrt_llm"))

    assert ("dropped", "", None) == (row.how, row.key, row.value)
    assert "nobody filled it in" in row.note


@pytest.mark.parametrize(
    "one",
    [
        (BUILD, "max_batch_size", "many"),
        (BUILD, "max_batch_size", True),
        (PARAMETER, "kv_cache_free_gpu_mem_fraction", "nan", "tensorrt_llm"),
        (PARAMETER, "enable_chunked_context", "perhaps", "tensorrt_llm"),
        (PARAMETER, "batch_scheduler_policy", "first_come", "tensorrt_llm"),
        (PARAMETER, "max_attention_window_size", "4096,wide", "tensorrt_llm"),
        (Reader.CONTAINER, "memory", "a lot"),
    ],
)
def test_a_value_that_its_reader_would_not_take_is_not_guessed(one: tuple[Any, ...]) -> None:
    """It has no equivalent, and the row names it."""
    row = only_row(one)

    assert ("none", None) == (row.how, row.value)
    assert str(one[2]) in row.lost


def test_what_nobody_knows_is_said_and_not_dropped() -> None:
    """An option of no release has a row without an equivalent."""
    row = only_row((BUILD, "max_bach_size", 3))

    assert ("none", True) == (row.how, "no setting of that name" in row.means)


@pytest.mark.parametrize(
    ("settings", "how", "value"),
    [
        ([(ENGINE, "pretrained_config.quantization.quant_algo", "FP8")], "exact", "fp8"),
        ([(ENGINE, "pretrained_config.quantization.quant_algo", None)], "dropped", None),
        ([(ENGINE, "pretrained_config.quantization.quant_algo", "W8A8_SQ_PER_CHANNEL")], "approximate", "fp8"),
        ([(ENGINE, "pretrained_config.quantization.quant_algo", "W4A16_GPTQ")], "none", None),
        ([(ENGINE, "pretrained_config.quantization.quant_algo", "MIXED_PRECISION")], "none", None),
        ([(QUANTIZE, "qformat", "int4_awq")], "exact", "int4_awq"),
        ([(QUANTIZE, "qformat", "full_prec")], "dropped", None),
        ([(QUANTIZE, "qformat", "fp8,int4_awq"), (QUANTIZE, "autoq_format", "fp8,int4_awq")], "none", None),
        ([(CONVERT, "use_weight_only", True)], "exact", "int8_wo"),
        ([(CONVERT, "use_weight_only", True), (CONVERT, "weight_only_precision", "int4")], "exact", "int4_wo"),
        ([(CONVERT, "use_weight_only", True), (CONVERT, "weight_only_precision", "int4_gptq")], "none", None),
        ([(CONVERT, "use_fp8_rowwise", True)], "exact", "fp8_rowwise"),
        ([(CONVERT, "smoothquant", 0.5)], "approximate", "fp8"),
        ([(CONVERT, "weight_only_precision", "int4")], "dropped", None),
    ],
)
def test_number_formats_are_read_from_all_that_says_them(settings: list[Any], how: str, value: object) -> None:
    """Of rank files, the quantiser and the converter's switches; the nearest where the release runs not that one."""
    row = only_row(*settings)

    assert (how, value) == (row.how, row.value)


def test_a_format_that_a_later_release_has_is_the_nearest_before_it() -> None:
    """int8 weights alone are read from 1.1 on: 1.0 takes FP8 in their place."""
    one = (ENGINE, "pretrained_config.quantization.quant_algo", "W8A16")

    assert ("exact", "int8_wo") == (only_row(one, to="1.1.0").how, only_row(one, to="1.1.0").value)
    assert ("approximate", "fp8") == (only_row(one, to="1.0.0").how, only_row(one, to="1.0.0").value)


@pytest.mark.parametrize(
    ("value", "how", "becomes"), [("fp8", "exact", "fp8"), ("int8", "approximate", "fp8"), (None, "dropped", None)]
)
def test_the_kv_caches_format_is_one_that_the_pytorch_backend_keeps(value: object, how: str, becomes: object) -> None:
    """INT8 becomes FP8, of the same size."""
    row = only_row((QUANTIZE, "kv_cache_dtype", value))

    assert (how, becomes) == (row.how, row.value)


def test_groups_say_something_beside_a_format_that_has_them() -> None:
    """64 and 128 beside int4_awq; beside FP8 it means nothing, and groups of 32 are not made."""
    algo, size = "pretrained_config.quantization.quant_algo", "pretrained_config.quantization.group_size"

    assert ("exact", 64) == (lambda row: (row.how, row.value))(
        only_row((ENGINE, size, 64), (ENGINE, algo, "W4A16_AWQ"))
    )
    assert 128 == only_row((ENGINE, size, 128), (ENGINE, algo, "W4A16_AWQ")).value
    assert ("approximate", None) == (lambda row: (row.how, row.value))(
        only_row((ENGINE, size, 32), (ENGINE, algo, "W4A16"))
    )
    assert "dropped" == only_row((ENGINE, size, 64), (ENGINE, algo, "FP8")).how


def test_the_number_of_ranks_alone_says_no_split() -> None:
    """Four ranks may be stages: nothing is written, and the row says so; beside tp_size it follows."""
    alone = only_row((Reader.LAUNCHER, "world_size", 4))
    beside = only_row((Reader.LAUNCHER, "world_size", 4), (CONVERT, "tp_size", 2))

    assert ("approximate", "", None) == (alone.how, alone.key, alone.value)
    assert "parallelism.tensor: 4" in alone.instead
    assert ("stays auto" in alone.lost, "") == (True, alone.note)
    assert ("dropped", "dropped") == (beside.how, only_row((Reader.LAUNCHER, "world_size", 1)).how)


def test_tritons_batch_bounds_a_call_and_not_a_step() -> None:
    """It becomes the limit only where no file says the engine's own."""
    alone = only_row((FIELD, "max_batch_size", 16, "ensemble"))
    beside = only_row((FIELD, "max_batch_size", 16, "ensemble"), (BUILD, "max_batch_size", 64))

    assert ("approximate", 16) == (alone.how, alone.value)
    assert ("dropped", None) == (beside.how, beside.value)


def test_lookahead_becomes_ngram_where_its_length_is_known() -> None:
    """The first token of an n-gram of 7 is known, so 6 are drafted; without the length nothing is guessed."""
    mode, size = (
        (BUILD, "speculative_decoding_mode", "lookahead_decoding"),
        (PARAMETER, "lookahead_ngram_size", "7", "tensorrt_llm"),
    )

    assert ("approximate", "speculation.kind", "ngram") == (lambda row: (row.how, row.key, row.value))(
        only_row(mode, size)
    )
    assert ("approximate", "speculation.draft_tokens", 6) == (lambda row: (row.how, row.key, row.value))(
        only_row(size, mode)
    )
    assert ("none", None) == (only_row(mode).how, only_row(mode).value)


@pytest.mark.parametrize("mode", ["draft_tokens_external", "medusa", "eagle", "explicit_draft_tokens", 2, 4, 16, 32])
def test_heads_in_an_engine_and_outside_drafts_have_no_equivalent_by_themselves(mode: object) -> None:
    """The row says which section to add; the drafted length goes with the mode."""
    row = only_row((BUILD, "speculative_decoding_mode", mode))
    length = only_row((BUILD, "max_draft_len", 5), (BUILD, "speculative_decoding_mode", mode))

    assert ("none", "none", True) == (row.how, length.how, "speculation" in row.instead)


def test_gpus_of_instances_are_copies_and_those_of_one_server_a_variable() -> None:
    """Sets with semicolons between are instances."""
    two, one = (only_row((PARAMETER, "gpu_device_ids", text, "tensorrt_llm")) for text in ("0,1;2,3", "2, 3"))

    assert ("parallelism.replicas", 2) == (two.key, two.value)
    assert ("environment.CUDA_VISIBLE_DEVICES", "2,3") == (one.key, one.value)


@pytest.mark.parametrize(
    ("text", "beside", "told"),
    [
        ("0,1;2,3", (), True),
        ("0,1", (), True),
        ("0;1", (), False),
        ("0,1;2,3", ((CONVERT, "tp_size", 2),), False),
    ],
)
def test_gpus_of_an_instance_alone_say_no_split(text: str, beside: tuple[tuple[Any, ...], ...], told: bool) -> None:
    """Two GPUs of an instance may be stages: the split stays auto, and the row says so unless a file says it."""
    row = only_row((PARAMETER, "gpu_device_ids", text, "tensorrt_llm"), *beside)
    assert (told, told) == ("parallelism.tensor stays auto" in row.lost, "parallelism.tensor: 2" in row.instead)


@pytest.mark.parametrize("word", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("reader", [CONVERT, QUANTIZE, Reader.CHECKPOINT])
def test_a_type_that_was_asked_for_is_written_whichever_it_is(reader: Reader, word: str) -> None:
    """Nobody knows the checkpoint's own type here, so none of them is taken for it; auto asks for nothing."""
    row, auto = only_row((reader, "dtype", word)), only_row((reader, "dtype", "auto"))
    assert ("approximate", "dtype", word) == (row.how, row.llm, row.value)
    assert ("dropped", None) == (auto.how, auto.value)


@pytest.mark.parametrize("name", ["extra_llm_api_options", "config"])
def test_a_yaml_beside_a_server_names_the_command_that_carries_it_over(name: str) -> None:
    """With the file as the script calls it and both releases; it is lost until somebody does it."""
    found = found_of((Reader.SERVE, name, "my extra.yml"), release="1.0.0")
    (row,) = rows_of(found, "1.2.1")
    assert ("none", None) == (row.how, row.value)
    assert row.instead.startswith("trtkit migrate yaml 'my extra.yml' --from 1.0.0 --to 1.2.1;")


def test_what_the_runtime_does_by_itself_is_data() -> None:
    """A repository that is silent on chunked prefill keeps it off, as the table of the runtime has it."""
    (row,) = runtime_defaults()
    silent = found_of((PARAMETER, "max_beam_width", 1, "tensorrt_llm"))
    said = found_of((PARAMETER, "enable_chunked_context", "true", "tensorrt_llm"))
    none, other = (assumed(one, rows_of(one, "1.2.1")) for one in (silent, said))
    assert [(row.key, row.value)] == [(one.key, one.value) for one in none]
    assert () == other
    assert ("scheduler.chunked_prefill", False) == (row.key, row.value)


@pytest.mark.parametrize(
    ("name", "value", "how"),
    [
        ("TRTLLM_ORCHESTRATOR", "1", "dropped"),
        ("HF_TOKEN", None, "approximate"),
        ("MY_API_KEY", "abc", "approximate"),
        ("LD_LIBRARY_PATH", "/lib", "none"),
        ("TRTLLM_NOBODY_KNOWS", "1", "approximate"),
        ("TLLM_LOG_LEVEL", "INFO", "exact"),
    ],
)
def test_variables_of_the_process_stay_unless_they_spoke_of_engines_or_are_secret(
    name: str, value: object, how: str
) -> None:
    """A secret's value stands in no row's value."""
    row = only_row((ENV, name, value))

    assert how == row.how
    assert row.value is None or row.how != "approximate" or name.startswith("TRTLLM_")


def test_a_variable_that_the_release_no_longer_reads_is_lost() -> None:
    """TRTLLM_SERVER_DISABLE_GC is read from 1.2 on, and not by 1.0."""
    assert "none" == only_row((ENV, "TRTLLM_SERVER_DISABLE_GC", "1"), to="1.0.0").how
    assert "exact" == only_row((ENV, "TRTLLM_SERVER_DISABLE_GC", "1"), to="1.2.1").how


@pytest.mark.parametrize("name", ["enable_trt_overlap", "cuda_graph_mode"])
def test_a_switch_of_the_old_runtime_that_is_off_does_not_slow_the_new_one(name: str) -> None:
    """Templates are filled with false, which was that runtime's default; true is a wish for the new one too."""
    off, on = (only_row((PARAMETER, name, text, "tensorrt_llm")) for text in ("false", "true"))

    assert ("dropped", None) == (off.how, off.value)
    assert ("exact", True) == (on.how, on.value)


def test_there_is_one_row_for_each_setting_in_their_order() -> None:
    """Whatever they are, known or not, and said twice."""
    settings = [(BUILD, "max_batch_size", 1), (BUILD, "what", 2), (BUILD, "max_batch_size", 1), (ENV, "A", "b")]
    rows = rows_of(found_of(*settings), "main")

    assert [one[1] for one in settings] == [row.setting.name for row in rows]
    assert [1, 2, 3, 4] == [row.setting.where.line for row in rows]
