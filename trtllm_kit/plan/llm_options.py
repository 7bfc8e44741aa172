"""``llm_api.options`` of a profile: which keys of the LLM API they may be, and which are a plan's own (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.light import dataclass
from trtllm_kit.plan.llm_keys import GRAPH_KEYS, LIMIT_KEYS, LLM_API_KEYS, SETTINGS, settings_of
from trtllm_kit.plan.plan import Decided, Plan, profile_key
from trtllm_kit.plan.serving_mode import serves_engines
from trtllm_kit.plan.speculation_keys import FIELDS
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.upstream.llm_api import keys_taken, limits_section
from trtllm_kit.upstream.llm_api_inside import inside_keys, is_early
from trtllm_kit.upstream.speculation import SECTION as SPECULATION

SECTION = "llm_api.options"
GRAPH_SIZES = "cuda_graph_config.batch_sizes"
_GRAPHS = GRAPH_KEYS["engine.cuda_graphs"]
_PLANNED = {
    "model": "trtkit links the checkpoint there",
    "backend": "trtkit serves by PyTorch",
    "enable_iter_perf_stats": "it is always true: check-health reads what it switches on",
    "return_perf_metrics": "it is always true: check-health reads what it switches on",
    "triton_config": "it is a section for Triton's model, and none of the LLM API",
}
"""Keys that a plan settles by itself, with the reason."""
_ALIKE = {
    "context_parallel_size": "parallelism.context",
    "moe_tensor_parallel_size": "parallelism.expert",
    "env_overrides": "environment",
}
"""Keys that a plan writes nothing of, and that another key of a profile decides."""


@dataclass(frozen=True)
class Refusal:
    """Why an option cannot stand."""

    why: str
    advice: str
    """What to write in its place."""


def options_plan(plan: Plan, loaded: LoadedProfile) -> dict[str, Decided[Any]] | None:
    """Return the options that the plan's YAML gets, by name; None without any, and for engines, which have no YAML.

    Their order in the profile says nothing, so that the same options are the same engine.
    """
    asked = loaded.profile.llm_api.options
    if not asked or serves_engines(plan):
        return None
    kept = {
        name: Decided[Any](value=data_of(value), source="profile", reason="asked by the profile")
        for name, value in sorted(asked.items())
        if refusal(plan, name, asked) is None
    }
    return kept or None


def data_of(value: Any) -> Any:
    """Return a value as documents hold it: the tuples of a profile are lists, and mappings stand by their keys."""
    if isinstance(value, Mapping):
        return {name: data_of(one) for name, one in sorted(value.items())}
    return [data_of(one) for one in value] if isinstance(value, list | tuple) else value


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with dotted keys as the sections they name; one that stands inside a value is left out."""
    document: dict[str, Any] = {}
    for key, value in options.items():
        put(document, key, value)
    return document


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key of a document, unless one of its sections is no section there."""
    *path, last = key.split(".")
    inner: Any = document
    for name in path:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            return
    inner[last] = value


def own_words(version: str) -> dict[str, str]:
    """Return the keys of the LLM API that a key of a profile stands for, with that key."""
    found = {target: profile_key(decision) for decision, target in LLM_API_KEYS.items()}
    found |= {setting.key: profile_key(setting.decision) for setting in SETTINGS}
    found |= {target: key for key, target in GRAPH_KEYS.items()} | _ALIKE
    found |= {f"{SPECULATION}.{field}": f"speculation.{key}" for key, fields in FIELDS.items() for field in fields}
    section = limits_section(version)
    prefixes = ("", f"{section}.") if section else ("",)
    found |= {f"{prefix}{name}": f"limits.{name}" for prefix in prefixes for name in LIMIT_KEYS}
    return found | ({f"{section}.max_input_len": "limits.max_seq_len"} if section else {})


def is_an_option(version: str, key: str) -> bool:
    """Whether ``llm_api.options`` may set a key of the LLM API, as far as other keys of a profile go."""
    sections = {SPECULATION, limits_section(version), *(one.rpartition(".")[0] for one in LLM_API_KEYS.values())}
    return key not in _PLANNED and key not in own_words(version) and key not in sections


def refusal(plan: Plan, name: str, asked: Mapping[str, Any]) -> Refusal | None:
    """Return why one of the options that a profile asks for cannot stand; None where it can."""
    key, words = f"{SECTION}.{name}", own_words(plan.release.value)
    if name in _PLANNED:
        where = "serve.checkpoint_path for another place, or " if name == "model" else ""
        return Refusal(_PLANNED[name], f"{where}leave {key} out")
    if name in words:
        return Refusal(f"{words[name]} stands for it", f"{words[name]} in its place")
    whole = next((word for word in _above(name) if _is_whole(word, words)), None)
    if whole is not None:
        return Refusal(f"{whole} holds no other keys", f"leave {key} out")
    return _without_its_section(plan, name) or _of_a_section(plan, name, asked)


def _without_its_section(plan: Plan, name: str) -> Refusal | None:
    """Refuse a key inside a section that the plan does not write."""
    if name.startswith(f"{_GRAPHS}.") and not plan.engine.cuda_graphs.value:
        return Refusal("engine.cuda_graphs is false, so that section is null", "engine.cuda_graphs: true")
    if f"{name}.".startswith(f"{SPECULATION}.") and (plan.speculation is None or name == SPECULATION):
        return Refusal("the section speculation says whether and how to draft", "speculation.kind and draft_tokens")
    if plan.limits.max_beam_width.value > 1 and name == "enable_trtllm_sampler":
        return Refusal("limits.max_beam_width decides it", f"leave {SECTION}.{name} out")
    return None


def _of_a_section(plan: Plan, name: str, asked: Mapping[str, Any]) -> Refusal | None:
    """Refuse a whole section where single keys of it are set, by the plan or by other options, or are known."""
    key, version = f"{SECTION}.{name}", plan.release.value
    inside = next((one for one in (*_written(plan), *asked) if one.startswith(f"{name}.")), None)
    if inside is not None:
        by = "an option of its own" if inside in asked else f"written for {own_words(version)[inside]}"
        return Refusal(f"{inside}, which is inside it, is {by}", f"{key}.NAME for each key that it is to hold")
    value = asked[name]
    if not isinstance(value, Mapping) or not value or not any(one.startswith(f"{name}.") for one in _known(version)):
        return None
    return Refusal("the keys inside it have dotted names", f"{key}.{next(iter(value))}, and so on for each key of it")


def _above(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _is_whole(word: str, words: Mapping[str, str]) -> bool:
    """Whether a key that a profile or the plan decides is a value, with nothing inside it."""
    return word in _PLANNED or (word in words and word != _GRAPHS)


def _written(plan: Plan) -> Iterator[str]:
    """Yield the keys inside sections that a plan writes."""
    yield from (one for one in LLM_API_KEYS.values() if "." in one)
    yield from (setting.key for setting, _ in settings_of(plan))
    section = limits_section(plan.release.value)
    yield from (f"{section}.{name}" for name in LIMIT_KEYS if section)


def _known(version: str) -> Iterator[str]:
    yield from keys_taken(version)
    early = is_early(version)
    yield from (row.key for row in inside_keys(early=early) if row.holds(version) and row.backend == "pytorch")
