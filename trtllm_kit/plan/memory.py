"""Memory of the fullest GPU: what the terms take, what is left for the KV cache, how many sequences that holds.

    KV budget = (capacity - terms) x free_gpu_memory_fraction x (1 - share the pool's allocator keeps)

The terms are weights, activations, communication buffers, logits and the runtime itself. Coefficients are data
(``upstream/memory.yaml``); ``docs/explanation/memory-model.md`` has the derivation and how well it predicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import ceil, floor

from trtllm_kit.light import dataclass
from trtllm_kit.plan import formats as number_formats
from trtllm_kit.plan.formats import FORMATS, Formats
from trtllm_kit.plan.parallelism import Split, exchanged, kv_heads_per_rank, stages
from trtllm_kit.plan.plan import MemoryPlan, MemoryTerm
from trtllm_kit.plan.recurrent import state_bytes_per_sequence
from trtllm_kit.plan.sparse_cache import beyond_bytes, beyond_bytes_per_token, index_bytes
from trtllm_kit.plan.speculation import Drafting, DraftMemory, draft_memory, logit_rows
from trtllm_kit.plan.weights import Held, held_by_stage
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import Attention, Experts, Layer, ModelSpec
from trtllm_kit.spec.profile import KvCache, Limits, Load, Runtime
from trtllm_kit.spec.tensors import parameters
from trtllm_kit.units import counted
from trtllm_kit.upstream import memory as upstream


@dataclass(frozen=True)
class Sizing:
    """Everything the memory of a deployment depends on."""

    model: ModelSpec
    hardware: Hardware
    split: Split
    formats: Formats
    runtime: Runtime
    limits: Limits
    kv_cache: KvCache
    load: Load
    drafting: Drafting | None = None
    """Speculative decoding; None without."""


def memory_plan(sizing: Sizing) -> MemoryPlan:
    """Size every pipeline stage and return the binding one: one that does not fit, else the least roomy."""
    plans = [_stage_plan(sizing, stage) for stage in stages(sizing.model, sizing.split.pipeline)]
    return min(plans, key=lambda plan: (plan.fits, plan.sequences, plan.kv_budget_bytes))


def kv_bytes_per_token(layers: tuple[Layer, ...], tensor: int, element_bytes: float) -> int:
    """Return the bytes one more token takes on a tensor rank: keys and values of all these layers."""
    return _bytes_per_token(_attentions(layers), tensor, element_bytes)


def _attentions(layers: Iterable[Layer]) -> Counter[Attention]:
    """Count the attentions of layers; what mixes tokens in another way, or not at all, has no place in the KV cache."""
    return Counter(layer.mixer for layer in layers if isinstance(layer.mixer, Attention))


def _bytes_per_token(attentions: Counter[Attention], tensor: int, element_bytes: float) -> int:
    return sum(
        count * (_layer_kv_bytes(kind, tensor, element_bytes) + ceil(beyond_bytes_per_token(kind, element_bytes)))
        for kind, count in attentions.items()
    )


def kv_bytes_per_sequence(layers: tuple[Layer, ...], sizing: Sizing, tokens: int) -> int:
    """Return the bytes a sequence of that many tokens takes on a tensor rank, in whole blocks: one beam.

    A layer with a sliding window holds no more than its window.
    """
    return _request_bytes(_attentions(layers), sizing, prompt=tokens, answer=0)


def _request_bytes(attentions: Counter[Attention], sizing: Sizing, *, prompt: int, answer: int) -> int:
    """Return the bytes of a request at its end: its beams share the whole blocks of the prompt."""
    element_bytes, block = kv_element_bytes(sizing), sizing.kv_cache.tokens_per_block
    blocks = {attention: _request_blocks(attention, sizing, prompt, answer) for attention in attentions}
    beyond = sum(count * beyond_bytes(kind, prompt + answer, element_bytes) for kind, count in attentions.items())
    return beyond * sizing.limits.max_beam_width + sum(
        count * blocks[attention] * block * _layer_kv_bytes(attention, sizing.split.heads, element_bytes)
        for attention, count in attentions.items()
    )


def _request_blocks(attention: Attention, sizing: Sizing, prompt: int, answer: int) -> int:
    """Return the blocks of one layer: those of one beam, and for each further beam those behind the shared ones."""
    block, tokens = sizing.kv_cache.tokens_per_block, prompt + answer
    first = ceil(kept_tokens(attention, tokens) / block)
    own = min(first, ceil(tokens / block) - prompt // block)
    return first + (sizing.limits.max_beam_width - 1) * own


def _bytes_of_length(attentions: Counter[Attention], sizing: Sizing, tokens: int, drafted: int) -> int:
    """Return the bytes of a request of that many tokens a beam, whose answer is as long as the load's."""
    answer = min(sizing.load.output_tokens, tokens)
    return _request_bytes(attentions, sizing, prompt=tokens - answer, answer=answer + drafted)


def _longest_sequence(attentions: Counter[Attention], sizing: Sizing, budget: int, drafted: int) -> int:
    """Return the tokens of the longest sequence within the budget, in whole blocks, up to ``max_seq_len``."""
    most, block = sizing.limits.max_seq_len, sizing.kv_cache.tokens_per_block
    if _bytes_of_length(attentions, sizing, most, drafted) <= budget:
        return most
    low, high = 0, most // block
    while low < high:
        middle = (low + high + 1) // 2
        fits = _bytes_of_length(attentions, sizing, middle * block, drafted) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * block


def kept_tokens(attention: Attention, tokens: int) -> int:
    """Return how many of a sequence's tokens the KV cache of a layer keeps."""
    if attention.window is None or not upstream.holds_window_only(attention.kind):
        return tokens
    return min(tokens, attention.window)


def attentions_kept(sizing: Sizing, stage: range) -> Counter[Attention]:
    """Count the attentions of a stage's layers, each with the window that the profile asks for."""
    asked = sizing.kv_cache.max_attention_window
    if asked == "auto":
        return _attentions(sizing.model.layers[number] for number in stage)
    mixers = ((sizing.model.layers[number].mixer, asked[number % len(asked)]) for number in stage)
    return Counter(_narrowed(mixer, window) for mixer, window in mixers if isinstance(mixer, Attention))


def _narrowed(attention: Attention, window: int) -> Attention:
    """Return an attention whose layer keeps the asked window, whatever its own is."""
    return attention.model_copy(update={"kind": "sliding", "window": window})


def kv_element_bytes(sizing: Sizing) -> float:
    """Return the bytes of one key or value element and its block scale; the reference runtime keeps float32."""
    return 4 if sizing.runtime == "reference" else number_formats.kv_element_bytes(sizing.formats.kv_cache)


def sequence_tokens(load: Load, beams: int) -> int:
    """Return the tokens a request of the asked length holds in the KV cache at its end."""
    return load.input_tokens + load.output_tokens * beams


def _stage_plan(sizing: Sizing, stage: range) -> MemoryPlan:
    held = held_by_stage(sizing.model, sizing.split, sizing.formats, stage)
    draft = _draft(sizing, stage)
    found = (*_terms(sizing, held), *_state_terms(sizing, stage), *_draft_terms(draft))
    terms = tuple(term for term in found if term.bytes)
    capacity = floor(sizing.hardware.gpu.memory_bytes.value)
    left = capacity - sum(term.bytes for term in terms)
    budget = _kv_budget(left, sizing.kv_cache.free_gpu_memory_fraction)
    attentions = attentions_kept(sizing, stage) + (draft.attentions if draft else Counter())
    drafted = draft.tokens if draft else 0
    load = sizing.load
    per_sequence = _request_bytes(attentions, sizing, prompt=load.input_tokens, answer=load.output_tokens + drafted)
    return MemoryPlan(
        capacity_bytes=capacity,
        terms=terms,
        kv_budget_bytes=budget,
        kv_bytes_per_token=_bytes_per_token(attentions, sizing.split.heads, kv_element_bytes(sizing)),
        kv_bytes_per_sequence=per_sequence,
        sequences=sizing.split.data * max(0, budget // per_sequence)
        if per_sequence
        else _without_cache(sizing, budget),
        min_sequences=sizing.load.min_concurrency,
        kv_bytes_longest=_bytes_of_length(attentions, sizing, sizing.limits.max_seq_len, drafted),
        longest_sequence=_longest_sequence(attentions, sizing, budget, drafted),
        parameters_even_split=round(parameters(sizing.model) / sizing.split.world_size),
        parameters_held=held.parameters,
        data_ranks=sizing.split.data,
    )


def _draft(sizing: Sizing, stage: range) -> DraftMemory | None:
    """Return what drafting takes on a stage: the last one drafts; None without speculation."""
    if sizing.drafting is None or stage.stop != len(sizing.model.layers):
        return None
    return draft_memory(sizing.drafting, sizing.model, sizing.split)


def _without_cache(sizing: Sizing, budget: int) -> int:
    """Return the sequences of a stage whose layers cache nothing: as many as it has states for."""
    return sizing.split.places(sizing.limits.max_batch_size) if budget >= 0 else 0


def _state_terms(sizing: Sizing, stage: range) -> Iterator[MemoryTerm]:
    each = state_bytes_per_sequence((sizing.model.layers[number] for number in stage), sizing.split.dense)
    batch = sizing.split.places(sizing.limits.max_batch_size) // sizing.split.data
    how = f"{batch:,} requests x {each:,} B of recurrent and convolution state, at any length"
    yield MemoryTerm(name="recurrent states", bytes=batch * each, how=how)


def _draft_terms(draft: DraftMemory | None) -> Iterator[MemoryTerm]:
    if draft is not None:
        yield MemoryTerm(name="draft weights", bytes=draft.weight_bytes, how=draft.how)


def _kv_budget(left: int, fraction: float) -> int:
    """Return what the runtime gives the KV cache of ``left`` bytes; a lack of memory is passed on as it is."""
    return left if left < 0 else floor(left * fraction * (1 - upstream.kv_reserved_share()))


def _layer_kv_bytes(attention: Attention, tensor: int, element_bytes: float) -> int:
    """Return the bytes of one token; a latent entry is whole on every tensor rank, and no value stands beside it."""
    if attention.latent is not None:
        return ceil((attention.latent.kv_rank + attention.latent.rope_dim) * element_bytes) + index_bytes(attention)
    if attention.compression is not None:
        return ceil(attention.head_dim * element_bytes)  # key and value at once
    width = attention.head_dim + attention.value_width
    return ceil(kv_heads_per_rank(attention, tensor) * width * element_bytes) + index_bytes(attention)


def _terms(sizing: Sizing, held: Held) -> Iterator[MemoryTerm]:
    if not sizing.hardware.is_rehearsal:
        yield from _gpu_weights(held)
        yield from _gpu_terms(sizing)
    elif sizing.runtime == "reference":
        yield from _reference_terms(sizing, held)
    elif sizing.runtime == "transformers":
        yield from _gpu_weights(held)


def _gpu_weights(held: Held) -> Iterator[MemoryTerm]:
    """Yield a term for each number format that weights take, 16 bit last, and one for all scales."""
    for name in sorted(FORMATS, key=lambda name: name == "bf16"):
        if count := held.elements.get(name, 0):
            title = "16 bit" if name == "bf16" else name
            how = f"{count:,} elements x {FORMATS[name].bits / 8:g} B"
            yield MemoryTerm(name=f"weights in {title}", bytes=held.bytes_in(name), how=how)
    sizes = sorted(held.scales, reverse=True)
    how = " + ".join(f"{held.scales[size]:,} scales x {size} B" for size in sizes if held.scales[size])
    yield MemoryTerm(name="scales", bytes=held.scale_bytes, how=how)


def _gpu_terms(sizing: Sizing) -> Iterator[MemoryTerm]:
    model, limits, ranks = sizing.model, sizing.limits, sizing.split.world_size
    coefficient = upstream.activation_coefficient(activation_kind(model), sizing.split.dense)
    yield MemoryTerm(
        name="activations",
        bytes=round(2 * limits.max_num_tokens * model.hidden * coefficient),
        how=f"2 B x {limits.max_num_tokens:,} tokens x {model.hidden:,} hidden x {coefficient:g}",
    )
    block, entry = upstream.routing_block()
    sorted_tokens = limits.max_num_tokens * sizing.split.data  # of all ranks, where each has requests of its own
    routing = _routing_factor(model) * sorted_tokens * model.hidden // sizing.split.expert // block * entry
    yield MemoryTerm(name="expert routing", bytes=routing, how=f"{sorted_tokens:,} tokens sorted by expert")
    yield MemoryTerm(
        name="communication buffers",
        bytes=upstream.buffer_bytes("communication", ranks),
        how=f"NCCL buffers of {counted(ranks, 'rank')}",
    )
    if sizing.split.context > 1:
        yield _exchange_term(sizing)
    yield _logits_term(sizing)
    yield MemoryTerm(
        name="runtime",
        bytes=upstream.buffer_bytes("runtime", ranks),
        how="CUDA context, CUDA graphs, workspaces",
    )


def _exchange_term(sizing: Sizing) -> MemoryTerm:
    """Return the two buffers in which context ranks exchange heads for tokens (``gptAttentionCommon.cpp`` of 0.16)."""
    tokens, tensor = sizing.limits.max_num_tokens, sizing.split.dense
    width = max((exchanged(attention, tensor)[0] for attention in sizing.model.attentions), default=0)
    how = f"2 buffers x {tokens:,} tokens x {width:,} elements of queries, keys and values x 2 B"
    return MemoryTerm(name="context exchange", bytes=2 * tokens * width * 2, how=how)


def _reference_terms(sizing: Sizing, held: Held) -> Iterator[MemoryTerm]:
    """Yield what the numpy runtime takes: it keeps every weight as float32 and runs prompts in pieces."""
    model = sizing.model
    yield MemoryTerm(name="weights", bytes=4 * held.parameters, how=f"{held.parameters:,} elements kept as float32")
    widest = max((attention.heads for attention in model.attentions), default=0)
    scores = widest * REFERENCE_PIECE * sizing.limits.max_seq_len
    yield MemoryTerm(
        name="activations",
        bytes=2 * 4 * scores,
        how=f"2 x {widest} heads x {REFERENCE_PIECE} x {sizing.limits.max_seq_len:,} attention scores x 4 B",
    )
    expanded = max(map(_expanded_width, model.attentions), default=0) * sizing.limits.max_seq_len
    yield MemoryTerm(
        name="expanded keys and values", bytes=4 * expanded, how=f"{expanded:,} elements of one layer x 4 B"
    )
    yield _logits_term(sizing)


def _expanded_width(attention: Attention) -> int:
    """Return the elements a token's latent vector is expanded to, keys and values of all heads; 0 without one."""
    return 0 if attention.latent is None else attention.heads * (attention.head_dim + attention.latent.value_dim)


REFERENCE_PIECE = 512
"""Tokens of a prompt that the reference runtime takes through the layers at once."""


def _logits_term(sizing: Sizing) -> MemoryTerm:
    limits, vocab, rows = sizing.limits, sizing.model.vocab, logit_rows(sizing.drafting)
    drafts = f" x {rows} tokens" if rows > 1 else ""
    return MemoryTerm(
        name="logits",
        bytes=limits.max_batch_size * limits.max_beam_width * rows * vocab * 4,
        how=f"{limits.max_batch_size:,} requests x beam width {limits.max_beam_width}{drafts} x {vocab:,} words x 4 B",
    )


def activation_kind(model: ModelSpec) -> upstream.ActivationKind:
    """Return which row of the activation table a model belongs to."""
    if any(isinstance(layer.feed_forward, Experts) for layer in model.layers):
        return "experts"
    return "llama" if model.family in ("llama", "mistral") else "dense"


def _routing_factor(model: ModelSpec) -> int:
    """Return experts x experts per token of the model's largest expert block; 0 without one."""
    blocks = (layer.feed_forward for layer in model.layers)
    return max((block.experts * block.per_token for block in blocks if isinstance(block, Experts)), default=0)
