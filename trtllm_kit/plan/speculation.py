"""What drafting takes beside the model: weights and KV cache of the draft, and tokens that are not yet text.

The draft's own ``config.json`` is counted where the planner can read it; otherwise an estimate stands in and says so.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

from trtllm_kit.light import dataclass
from trtllm_kit.plan.formats import FORMATS, Formats
from trtllm_kit.plan.parallelism import Split, kv_heads_per_rank
from trtllm_kit.plan.weights import held_by_layer, held_by_stage
from trtllm_kit.spec.draft import DraftFacts
from trtllm_kit.spec.model import Attention, Dense, ModelSpec
from trtllm_kit.spec.profile_sections import Speculation
from trtllm_kit.upstream.speculation import extra_kv_tokens, kv_layers, step_tokens, usual_heads

SMALLER = 10
"""A draft model that cannot be read is taken to be that much smaller than the model it drafts for."""
MOST_DRAFT_WORDS = 32_000
"""Words of an EAGLE-3 head that cannot be read: what published ones can draft."""


@dataclass(frozen=True)
class Drafting:
    """Speculation as asked, with what is known of the draft model, under one release."""

    asked: Speculation
    version: str
    draft: DraftFacts | None = None


@dataclass(frozen=True)
class DraftMemory:
    """What drafting takes on one tensor rank."""

    weight_bytes: int
    how: str
    """The arithmetic, and whether it is an estimate."""
    attentions: Counter[Attention]
    """Layers whose keys and values are kept beside the model's."""
    tokens: int
    """KV tokens a sequence holds beyond its text."""


def draft_memory(drafting: Drafting, model: ModelSpec, split: Split) -> DraftMemory:
    """Return what a kind of speculation takes on a tensor rank of the stage that drafts (the last)."""
    kind, asked = drafting.asked.kind, drafting.asked.draft_tokens
    tokens = extra_kv_tokens(kind, drafting.version, asked)
    if kind in ("ngram", "sa", "auto", "lookahead"):
        return DraftMemory(0, f"{kind} drafts from the text", Counter(), tokens)
    if kind in ("medusa", "redrafter"):
        return _heads(drafting, model, split, tokens)
    if kind == "mtp":
        return _own_layers(drafting, model, split, tokens)
    if kind in ("draft_target", "pard") and drafting.draft is None:
        return _smaller_model(model, split, tokens)
    return _draft_model(drafting, model, split, tokens)


def logit_rows(drafting: Drafting | None) -> int:
    """Return the tokens of a sequence that one decode step computes logits for."""
    if drafting is None:
        return 1
    return step_tokens(drafting.asked.kind, drafting.version, drafting.asked.draft_tokens)


def _own_layers(drafting: Drafting, model: ModelSpec, split: Split, tokens: int) -> DraftMemory:
    """Count the model's prediction layers, each alike its last layer with a projection of twice the width, 16 bit."""
    step, layers = model.prediction_step, model.prediction_layers
    of_step = model.model_copy(update={"layers": step})
    each = sum(held_by_layer(of_step, number, split, Formats()).parameters for number in range(len(step)))
    each += 2 * model.hidden**2
    kept = kv_layers("mtp", drafting.version, layers, drafting.asked.draft_tokens)
    size = FORMATS["bf16"].bytes(layers * each)
    how = f"{layers} prediction layers of {each:,} elements x 2 B"
    kept_by = [layer.mixer for layer in step if isinstance(layer.mixer, Attention)]
    return DraftMemory(size, how, Counter(dict.fromkeys(kept_by, kept)), tokens)


def _draft_model(drafting: Drafting, model: ModelSpec, split: Split, tokens: int) -> DraftMemory:
    """Count a Llama-shaped draft from its facts, or an EAGLE-3 head from those of the model it is trained for."""
    kind, facts = drafting.asked.kind, drafting.draft or _likely_head(model)  # EAGLE: one layer of the model's width
    attention = Attention(
        kind="full", heads=facts.num_attention_heads, kv_heads=facts.kv_heads, head_dim=facts.head_width
    )
    count = {"eagle3": _head_elements, "eagle": _first_head_elements}.get(kind)
    elements = _elements(facts, attention, split) if count is None else count(facts, attention, model, split)
    known = "its config.json" if drafting.draft else "estimate: the folder is not here; one layer of the model's width"
    layers, drafts = facts.num_hidden_layers, drafting.asked.draft_tokens
    kept = layers if kind == "eagle" else kv_layers(kind, drafting.version, layers, drafts)
    size = FORMATS["bf16"].bytes(elements)
    return DraftMemory(size, f"{elements:,} elements x 2 B ({known})", Counter({attention: kept}), tokens)


def _heads(drafting: Drafting, model: ModelSpec, split: Split, tokens: int) -> DraftMemory:
    """Stand in for heads in a given checkpoint: one square layer and one output head each."""
    count = usual_heads(drafting.asked.kind, drafting.version)
    rows = ceil(model.vocab / split.dense)
    each = ceil(model.hidden / split.dense) * model.hidden + rows * model.hidden
    size = FORMATS["bf16"].bytes(count * each)
    how = f"estimate: {count} of {each:,} elements x 2 B; the given checkpoint says how many there are"
    return DraftMemory(size, how, Counter(), tokens)


def _smaller_model(model: ModelSpec, split: Split, tokens: int) -> DraftMemory:
    """Stand in for a draft model that cannot be read: a tenth of the model's weights, and of its layers."""
    whole = held_by_stage(model, split, Formats(), range(len(model.layers))).parameters
    kept: Counter[Attention] = Counter()
    for attention in model.attentions[::SMALLER]:
        kept[attention] += 1
    size = ceil(FORMATS["bf16"].bytes(whole) / SMALLER)
    how = f"estimate: the folder is not here; a tenth of {whole:,} elements x 2 B"
    return DraftMemory(size, how, kept, tokens)


def _likely_head(model: ModelSpec) -> DraftFacts:
    attention = next(iter(model.attentions), _USUAL)
    widths = [layer.feed_forward.intermediate for layer in model.layers if isinstance(layer.feed_forward, Dense)]
    return DraftFacts(
        hidden_size=model.hidden,
        intermediate_size=max(widths, default=4 * model.hidden),
        num_hidden_layers=1,
        num_attention_heads=attention.heads,
        num_key_value_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        vocab_size=model.vocab,
        draft_vocab_size=min(MOST_DRAFT_WORDS, model.vocab),
    )


_USUAL = Attention(kind="full", heads=32, kv_heads=8, head_dim=128)
"""The attention of a head for a model that has none to take it from."""


def _head_elements(facts: DraftFacts, attention: Attention, model: ModelSpec, split: Split) -> int:
    """Return the elements of an EAGLE-3 head on a rank: it shares the model's embedding and reads three hidden states.

    Its attention takes the embedding beside the hidden state, so query, key and value are twice as wide.
    """
    hidden, read = facts.hidden_size, facts.target_hidden_size or model.hidden
    layers = facts.num_hidden_layers * _layer_elements(facts, attention, split, inputs=2 * hidden)
    words = facts.draft_vocab_size or facts.vocab_size
    return 3 * read * hidden + layers + ceil(words / split.dense) * hidden


def _first_head_elements(facts: DraftFacts, attention: Attention, model: ModelSpec, split: Split) -> int:
    """Return the elements of a head of the first EAGLE on a rank: layers of its own behind one projection."""
    layers = facts.num_hidden_layers * _layer_elements(facts, attention, split, inputs=facts.hidden_size)
    return 2 * model.hidden * ceil(facts.hidden_size / split.dense) + layers


def _elements(facts: DraftFacts, attention: Attention, split: Split) -> int:
    """Return the elements of a whole Llama-shaped model on a rank, with an embedding and a head of its own."""
    layers = facts.num_hidden_layers * _layer_elements(facts, attention, split, inputs=facts.hidden_size)
    return layers + 2 * ceil(facts.vocab_size / split.dense) * facts.hidden_size


def _layer_elements(facts: DraftFacts, attention: Attention, split: Split, *, inputs: int) -> int:
    hidden, width = facts.hidden_size, attention.head_dim
    queries = ceil(attention.heads / split.dense) * width
    keys = kv_heads_per_rank(attention, split.dense) * width
    return (queries + 2 * keys) * inputs + queries * hidden + 3 * ceil(facts.intermediate_size / split.dense) * hidden
