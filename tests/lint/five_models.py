"""A repository of five models as upstream's templates give it when every value is filled in.

Written in our own words from the tensors, parameters and steps that the models of r25.05 have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# name:type:dims, with a question mark for an input that a request may leave out.
TENSORS = {
    "ensemble": (
        """
text_input:STRING:1 decoder_text_input:STRING:1? max_tokens:INT32:1 num_return_sequences:INT32:1?
bad_words:STRING:-1? stop_words:STRING:-1? exclude_input_in_output:BOOL:1? end_id:INT32:1? pad_id:INT32:1?
top_k:INT32:1? top_p:FP32:1? temperature:FP32:1? length_penalty:FP32:1? repetition_penalty:FP32:1?
min_tokens:INT32:1? presence_penalty:FP32:1? frequency_penalty:FP32:1? seed:UINT64:1? return_log_probs:BOOL:1?
return_context_logits:BOOL:1? return_generation_logits:BOOL:1? return_perf_metrics:BOOL:1? beam_width:INT32:1?
stream:BOOL:1? prompt_embedding_table:FP16:-1x-1? prompt_table_extra_id:UINT64:1? prompt_vocab_size:INT32:1?
embedding_bias_words:STRING:-1? embedding_bias_weights:FP32:-1? lora_task_id:UINT64:1? lora_weights:FP16:-1x-1?
lora_config:INT32:-1x3? guided_decoding_guide_type:STRING:1? guided_decoding_guide:STRING:1?
return_num_input_tokens:BOOL:1? return_num_output_tokens:BOOL:1?
        """,
        """
text_output:STRING:-1 cum_log_probs:FP32:-1 output_log_probs:FP32:-1x-1 context_logits:LOGITS:-1x-1
generation_logits:LOGITS:-1x-1x-1 batch_index:INT32:1 sequence_index:INT32:1 kv_cache_alloc_new_blocks:INT32:1
kv_cache_reused_blocks:INT32:1 kv_cache_alloc_total_blocks:INT32:1 arrival_time_ns:INT64:1
first_scheduled_time_ns:INT64:1 first_token_time_ns:INT64:1 last_token_time_ns:INT64:1 acceptance_rate:FP32:1
total_accepted_draft_tokens:INT32:1 total_draft_tokens:INT32:1 num_input_tokens:INT32:1
num_output_tokens:INT32:1
        """,
    ),
    "preprocessing": (
        """
QUERY:STRING:1 DECODER_QUERY:STRING:1? IMAGE_BYTES:UINT8:-1x-1x-1x-1? IMAGE_URL:STRING:1?
VIDEO_BYTES:UINT8:-1x-1x-1x-1? REQUEST_OUTPUT_LEN:INT32:1 BAD_WORDS_DICT:STRING:-1? STOP_WORDS_DICT:STRING:-1?
EMBEDDING_BIAS_WORDS:STRING:-1? EMBEDDING_BIAS_WEIGHTS:FP32:-1? END_ID:INT32:1? PAD_ID:INT32:1?
PROMPT_TABLE_EXTRA_ID:UINT64:1?
        """,
        """
INPUT_ID:INT32:-1 REQUEST_INPUT_LEN:INT32:1 DECODER_INPUT_ID:INT32:-1 REQUEST_DECODER_INPUT_LEN:INT32:1
BAD_WORDS_IDS:INT32:2x-1 STOP_WORDS_IDS:INT32:2x-1 EMBEDDING_BIAS:FP32:-1 REQUEST_OUTPUT_LEN:INT32:-1
OUT_END_ID:INT32:1 OUT_PAD_ID:INT32:1 OUT_PROMPT_TABLE_EXTRA_IDS:UINT64:-1 PIXEL_VALUES:FP16:-1x-1x-1x-1
ASPECT_RATIO_IDS:INT64:-1 ASPECT_RATIO_MASK:INT64:-1x-1 CROSS_ATTENTION_MASK:INT64:-1x-1x-1 IMAGE_SIZES:INT64:2
IS_VIDEO_INPUT:BOOL:1 ATTENTION_MASK:INT64:-1 IMAGE_GRID_THW:INT64:3 VISION_INPUT_ID:INT32:-1
        """,
    ),
    "tensorrt_llm": (
        """
input_ids:INT32:-1? encoder_input_features:FP16:-1x-1? encoder_output_lengths:INT32:1? input_lengths:INT32:1
request_output_len:INT32:1 num_return_sequences:INT32:1? draft_input_ids:INT32:-1? decoder_input_ids:INT32:-1?
decoder_input_lengths:INT32:1? draft_logits:LOGITS:-1x-1? draft_acceptance_threshold:FP32:1? end_id:INT32:1?
pad_id:INT32:1? stop_words_list:INT32:2x-1? bad_words_list:INT32:2x-1? embedding_bias:FP32:-1?
beam_width:INT32:1? temperature:FP32:1? runtime_top_k:INT32:1? runtime_top_p:FP32:1? runtime_top_p_min:FP32:1?
runtime_top_p_decay:FP32:1? runtime_top_p_reset_ids:INT32:1? len_penalty:FP32:1? early_stopping:BOOL:1?
repetition_penalty:FP32:1? min_tokens:INT32:1? beam_search_diversity_rate:FP32:1? presence_penalty:FP32:1?
frequency_penalty:FP32:1? seed:UINT64:1? return_log_probs:BOOL:1? return_context_logits:BOOL:1?
return_generation_logits:BOOL:1? return_perf_metrics:BOOL:1? exclude_input_in_output:BOOL:1? stop:BOOL:1?
streaming:BOOL:1? prompt_embedding_table:FP16:-1x-1? prompt_table_extra_ids:UINT64:-1?
prompt_vocab_size:INT32:1? cross_attention_mask:BOOL:-1x-1? mrope_rotary_cos_sin:FP32:-1?
mrope_position_deltas:INT64:1? lora_task_id:UINT64:1? lora_weights:FP16:-1x-1? lora_config:INT32:-1x3?
context_phase_params:UINT8:-1? skip_cross_attn_blocks:BOOL:1? retention_token_range_starts:INT32:-1?
retention_token_range_ends:INT32:-1? retention_token_range_priorities:INT32:-1?
retention_token_range_durations_ms:INT32:-1? retention_decode_priority:INT32:1?
retention_decode_duration_ms:INT32:1? guided_decoding_guide_type:STRING:1? guided_decoding_guide:STRING:1?
lookahead_window_size:INT32:1? lookahead_ngram_size:INT32:1? lookahead_verification_set_size:INT32:1?
return_num_input_tokens:BOOL:1? return_num_output_tokens:BOOL:1?
        """,
        """
output_ids:INT32:-1x-1 sequence_length:INT32:-1 cum_log_probs:FP32:-1 output_log_probs:FP32:-1x-1
context_logits:LOGITS:-1x-1 generation_logits:LOGITS:-1x-1x-1 batch_index:INT32:1 sequence_index:INT32:1
context_phase_params:UINT8:-1 kv_cache_alloc_new_blocks:INT32:1 kv_cache_reused_blocks:INT32:1
kv_cache_alloc_total_blocks:INT32:1 arrival_time_ns:INT64:1 first_scheduled_time_ns:INT64:1
first_token_time_ns:INT64:1 last_token_time_ns:INT64:1 acceptance_rate:FP32:1
total_accepted_draft_tokens:INT32:1 total_draft_tokens:INT32:1 num_input_tokens:INT32:1
num_output_tokens:INT32:1
        """,
    ),
    "postprocessing": (
        """
TOKENS_BATCH:INT32:-1x-1 SEQUENCE_LENGTH:INT32:-1
        """,
        """
OUTPUT:STRING:-1
        """,
    ),
    "tensorrt_llm_bls": (
        """
text_input:STRING:1 decoder_text_input:STRING:1? image_input:FP16:-1x3x-1x-1?
image_bytes_input:UINT8:-1x-1x-1x-1? image_url_input:STRING:1? video_bytes_input:UINT8:-1x-1x-1x-1?
max_tokens:INT32:1 bad_words:STRING:-1? stop_words:STRING:-1? exclude_input_in_output:BOOL:1? end_id:INT32:1?
pad_id:INT32:1? top_k:INT32:1? top_p:FP32:1? temperature:FP32:1? length_penalty:FP32:1?
repetition_penalty:FP32:1? min_tokens:INT32:1? presence_penalty:FP32:1? frequency_penalty:FP32:1? seed:UINT64:1?
return_log_probs:BOOL:1? return_context_logits:BOOL:1? return_generation_logits:BOOL:1?
num_return_sequences:INT32:1? beam_width:INT32:1? stream:BOOL:1? prompt_embedding_table:FP16:-1x-1?
prompt_vocab_size:INT32:1? prompt_table_extra_id:UINT64:1? embedding_bias_words:STRING:-1?
embedding_bias_weights:FP32:-1? num_draft_tokens:INT32:1? use_draft_logits:BOOL:1? lora_task_id:UINT64:1?
lora_weights:FP16:-1x-1? lora_config:INT32:-1x3? return_perf_metrics:BOOL:1?
guided_decoding_guide_type:STRING:1? guided_decoding_guide:STRING:1? return_num_input_tokens:BOOL:1?
return_num_output_tokens:BOOL:1? image_sizes_input:INT64:-1x2?
        """,
        """
text_output:STRING:-1 cum_log_probs:FP32:-1 output_log_probs:FP32:-1x-1 context_logits:LOGITS:-1x-1
generation_logits:LOGITS:-1x-1x-1 batch_index:INT32:1 sequence_index:INT32:1 kv_cache_alloc_new_blocks:INT32:1
kv_cache_reused_blocks:INT32:1 kv_cache_alloc_total_blocks:INT32:1 arrival_time_ns:INT64:1
first_scheduled_time_ns:INT64:1 first_token_time_ns:INT64:1 last_token_time_ns:INT64:1 acceptance_rate:FP32:1
total_accepted_draft_tokens:INT32:1 total_draft_tokens:INT32:1 num_input_tokens:INT32:1
num_output_tokens:INT32:1
        """,
    ),
}
# tensor of the model=tensor of the ensemble
STEPS = (
    (
        "preprocessing",
        """
QUERY=text_input DECODER_QUERY=decoder_text_input REQUEST_OUTPUT_LEN=max_tokens BAD_WORDS_DICT=bad_words
STOP_WORDS_DICT=stop_words EMBEDDING_BIAS_WORDS=embedding_bias_words
EMBEDDING_BIAS_WEIGHTS=embedding_bias_weights END_ID=end_id PAD_ID=pad_id
PROMPT_TABLE_EXTRA_ID=prompt_table_extra_id
        """,
        """
REQUEST_INPUT_LEN=_REQUEST_INPUT_LEN INPUT_ID=_INPUT_ID REQUEST_DECODER_INPUT_LEN=_REQUEST_DECODER_INPUT_LEN
DECODER_INPUT_ID=_DECODER_INPUT_ID REQUEST_OUTPUT_LEN=_REQUEST_OUTPUT_LEN STOP_WORDS_IDS=_STOP_WORDS_IDS
BAD_WORDS_IDS=_BAD_WORDS_IDS EMBEDDING_BIAS=_EMBEDDING_BIAS OUT_END_ID=_PREPROCESSOR_END_ID
OUT_PAD_ID=_PREPROCESSOR_PAD_ID OUT_PROMPT_TABLE_EXTRA_IDS=_OUT_PROMPT_TABLE_EXTRA_IDS
        """,
    ),
    (
        "tensorrt_llm",
        """
input_ids=_INPUT_ID decoder_input_ids=_DECODER_INPUT_ID input_lengths=_REQUEST_INPUT_LEN
decoder_input_lengths=_REQUEST_DECODER_INPUT_LEN exclude_input_in_output=exclude_input_in_output
request_output_len=_REQUEST_OUTPUT_LEN end_id=_PREPROCESSOR_END_ID pad_id=_PREPROCESSOR_PAD_ID
embedding_bias=_EMBEDDING_BIAS runtime_top_k=top_k runtime_top_p=top_p temperature=temperature
len_penalty=length_penalty repetition_penalty=repetition_penalty min_tokens=min_tokens
presence_penalty=presence_penalty frequency_penalty=frequency_penalty seed=seed
return_log_probs=return_log_probs return_context_logits=return_context_logits
return_generation_logits=return_generation_logits return_perf_metrics=return_perf_metrics
num_return_sequences=num_return_sequences beam_width=beam_width streaming=stream
prompt_embedding_table=prompt_embedding_table prompt_vocab_size=prompt_vocab_size
stop_words_list=_STOP_WORDS_IDS bad_words_list=_BAD_WORDS_IDS prompt_table_extra_ids=_OUT_PROMPT_TABLE_EXTRA_IDS
lora_task_id=lora_task_id lora_weights=lora_weights lora_config=lora_config
guided_decoding_guide_type=guided_decoding_guide_type guided_decoding_guide=guided_decoding_guide
return_num_input_tokens=return_num_input_tokens return_num_output_tokens=return_num_output_tokens
        """,
        """
output_ids=_TOKENS_BATCH sequence_length=_SEQUENCE_LENGTH cum_log_probs=cum_log_probs
output_log_probs=output_log_probs context_logits=context_logits generation_logits=generation_logits
batch_index=batch_index sequence_index=sequence_index kv_cache_alloc_new_blocks=kv_cache_alloc_new_blocks
kv_cache_reused_blocks=kv_cache_reused_blocks kv_cache_alloc_total_blocks=kv_cache_alloc_total_blocks
arrival_time_ns=arrival_time_ns first_scheduled_time_ns=first_scheduled_time_ns
first_token_time_ns=first_token_time_ns last_token_time_ns=last_token_time_ns acceptance_rate=acceptance_rate
total_accepted_draft_tokens=total_accepted_draft_tokens total_draft_tokens=total_draft_tokens
num_input_tokens=num_input_tokens num_output_tokens=num_output_tokens
        """,
    ),
    (
        "postprocessing",
        """
TOKENS_BATCH=_TOKENS_BATCH SEQUENCE_LENGTH=_SEQUENCE_LENGTH
        """,
        """
OUTPUT=text_output
        """,
    ),
)
PARAMETERS: dict[str, dict[str, str]] = {
    "ensemble": {},
    "preprocessing": {
        "tokenizer_dir": "/tokenizers/llama",
        "add_special_tokens": "true",
        "max_num_images": "",
        "multimodal_model_path": "",
        "engine_dir": "/engines/llama",
    },
    "tensorrt_llm": {
        "max_beam_width": "1",
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/engines/llama",
        "encoder_model_path": "",
        "max_tokens_in_paged_kv_cache": "",
        "max_attention_window_size": "",
        "sink_token_length": "",
        "batch_scheduler_policy": "max_utilization",
        "kv_cache_free_gpu_mem_fraction": "0.85",
        "cross_kv_cache_fraction": "",
        "kv_cache_host_memory_bytes": "0",
        "kv_cache_onboard_blocks": "",
        "exclude_input_in_output": "true",
        "cancellation_check_period_ms": "100",
        "stats_check_period_ms": "100",
        "iter_stats_max_iterations": "1000",
        "request_stats_max_iterations": "",
        "enable_kv_cache_reuse": "true",
        "normalize_log_probs": "",
        "enable_chunked_context": "false",
        "gpu_device_ids": "",
        "participant_ids": "",
        "num_nodes": "1",
        "lora_cache_optimal_adapter_size": "8",
        "lora_cache_max_adapter_size": "64",
        "lora_cache_gpu_memory_fraction": "0.05",
        "lora_cache_host_memory_bytes": "1073741824",
        "lora_prefetch_dir": "",
        "decoding_mode": "top_k_top_p",
        "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        "lookahead_window_size": "",
        "lookahead_ngram_size": "",
        "lookahead_verification_set_size": "",
        "medusa_choices": "",
        "eagle_choices": "",
        "gpu_weights_percent": "",
        "enable_context_fmha_fp32_acc": "",
        "multi_block_mode": "",
        "cuda_graph_mode": "",
        "cuda_graph_cache_size": "",
        "speculative_decoding_fast_logits": "",
        "tokenizer_dir": "",
        "guided_decoding_backend": "",
        "xgrammar_tokenizer_info_path": "",
    },
    "postprocessing": {"tokenizer_dir": "/tokenizers/llama", "skip_special_tokens": "true"},
    "tensorrt_llm_bls": {
        "accumulate_tokens": "false",
        "tensorrt_llm_model_name": "tensorrt_llm",
        "tensorrt_llm_draft_model_name": "",
        "multimodal_encoders_name": "",
    },
}


LATER = {
    "participant_ids": (0, 14), "eagle_choices": (0, 15), "multimodal_encoders_name": (0, 15),
    "lookahead_window_size": (0, 17), "lookahead_ngram_size": (0, 17), "lookahead_verification_set_size": (0, 17),
    "cuda_graph_mode": (0, 17), "cuda_graph_cache_size": (0, 17), "speculative_decoding_fast_logits": (0, 17),
    "guided_decoding_backend": (0, 17), "xgrammar_tokenizer_info_path": (0, 17), "max_num_images": (0, 17),
    "lora_prefetch_dir": (0, 18, 1), "num_nodes": (0, 19),
}  # fmt: skip
"""Parameters that came into the templates after 0.12, with the release they came with."""


def write_five_models(
    root: Path, changes: Mapping[str, Mapping[str, str]] | None = None, release: tuple[int, ...] = (1, 2, 1)
) -> Path:
    """Write the repository; ``changes`` has by model what is said otherwise, by the text that it replaces."""
    for model in TENSORS:
        text = config_text(model, release)
        for old, new in (changes or {}).get(model, {}).items():
            assert old in text, (model, old)
            text = text.replace(old, new)
        (root / model / "1").mkdir(parents=True)
        (root / model / "config.pbtxt").write_text(text)
    return root


def config_text(model: str, release: tuple[int, ...] = (1, 2, 1)) -> str:
    """Return one model's ``config.pbtxt``, with the parameters of a release."""
    lines = ["# a template, filled in", f'name: "{model}"', *_HEADS[model]]
    for kind, table in zip(("input", "output"), TENSORS[model], strict=True):
        lines += [f"{kind} [", ",\n".join(_tensor(entry) for entry in table.split()), "]"]
    for key, value in PARAMETERS[model].items():
        if release < LATER.get(key, (0,)) or (key == "tokenizer_dir" and model == "tensorrt_llm" and release < (0, 17)):
            continue
        lines += ["parameters: {", f'  key: "{key}"', "  value: {", f'    string_value: "{value}"', "  }", "}"]
    if model == "ensemble":
        lines += ["ensemble_scheduling {", "  step [", ",\n".join(_step(*step) for step in STEPS), "  ]", "}"]
    return "\n".join(lines) + "\n"


_BATCHING = """dynamic_batching {
  preferred_batch_size: [ 64 ]
  max_queue_delay_microseconds: 0
  default_queue_policy: { max_queue_size: 0 }
}"""
_ON_CPU = """instance_group [
  {
    count: 2
    kind: KIND_CPU
  }
]"""
_POLICY = "model_transaction_policy {\n  decoupled: true\n}"
_HEADS = {
    "ensemble": ['platform: "ensemble"', "max_batch_size: 64"],
    "preprocessing": ['backend: "python"', "max_batch_size: 64", _BATCHING, _ON_CPU],
    "tensorrt_llm": [
        'backend: "tensorrtllm"',
        "max_batch_size: 64",
        _POLICY,
        _BATCHING,
        "instance_group [{ count: 1 kind : KIND_CPU }]",
    ],
    "postprocessing": ['backend: "python"', "max_batch_size: 64", "dynamic_batching {}", _ON_CPU],
    "tensorrt_llm_bls": ['backend: "python"', "max_batch_size: 64", _POLICY, _ON_CPU],
}


def _tensor(entry: str) -> str:
    name, kind, dims = entry.rstrip("?").split(":")
    kind = "FP32" if kind == "LOGITS" else kind
    lines = [f'    name: "{name}"', f"    data_type: TYPE_{kind}", f"    dims: [ {dims.replace('x', ', ')} ]"]
    if entry.endswith("?"):
        lines.append("    optional: true")
    return "  {\n" + "\n".join(lines) + "\n  }"


def _step(model: str, inputs: str, outputs: str) -> str:
    lines = [f'      model_name: "{model}"', "      model_version: -1"]
    for kind, table in (("input_map", inputs), ("output_map", outputs)):
        for entry in table.split():
            key, _, value = entry.partition("=")
            lines += [f"      {kind} {{", f'        key: "{key}"', f'        value: "{value}"', "      }"]
    return "    {\n" + "\n".join(lines) + "\n    }"
