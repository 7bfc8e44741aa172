"""Checks of the engine that ``trtllm-build`` would make: the rules about engines, asked before there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtllm_kit.findings import Finding
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.given import TITLES
from trtllm_kit.plan.given import engines as rules
from trtllm_kit.plan.given.facts import EngineFacts, RepositoryFacts, ServingFacts, TritonModel
from trtllm_kit.plan.given.repositories import logits
from trtllm_kit.plan.settle_build import CONTAINERS
from trtllm_kit.upstream.stack import container

_MONTH = r":(\d\d\.\d\d)(?![\d.])"
_PLANNED = ("max_input_len", "max_num_tokens", "max_seq_len", "max_batch_size")
"""Limits that the plan's own rules judge, unless an option of the profile stands in their place."""
_GATHER = ("--gather_generation_logits", "--gather_context_logits", "--gather_all_token_logits")


def plugins(case: Case) -> Iterator[Finding]:
    """PF16: a plugin of another type than the weights."""
    engine = _engine(case)
    if engine is not None:
        yield from rules.plugin_types(engine, case.plan.release.value)


def workspace(case: Case) -> Iterator[Finding]:
    """PF17: attention that keeps the scores of a whole batch; the longest sequence is always passed."""
    engine, memory = _engine(case), case.plan.memory
    if engine is None:
        return
    free = memory.capacity_bytes - sum(term.bytes for term in memory.terms)
    yield from rules.lengths(engine, case.plan.release.value, free)


def repository(case: Case) -> Iterator[Finding]:
    """PF21: logits that the C++ backend, which is what serves an engine, would misread."""
    engine, backend = _engine(case), TritonModel("tensorrt_llm", backend="tensorrtllm")
    if engine is not None:
        yield from logits(RepositoryFacts((backend,), case.plan.release.value, engine=engine))


def requests(case: Case) -> Iterator[Finding]:
    """PF22 and PF25: the asked prompts, beams and drafts against options that the profile sets in the plan's place."""
    engine, build, drafting = _engine(case), case.plan.build, case.plan.speculation
    if engine is None or build is None:
        return
    asked = {name for name in _PLANNED if name in case.profile.build.options}
    limits = {name: value for name, value in engine.limits.items() if name in asked or name not in _PLANNED}
    drafts = drafting.draft_tokens.value if drafting and "--max_draft_len" in build.options else 0
    yield from rules.request(
        EngineFacts(limits=limits, plugins=engine.plugins),
        case.plan.release.value,
        beams=case.plan.limits.max_beam_width.value,
        drafts=drafts,
        prompt=case.profile.load.input_tokens,
    )


def reuse(case: Case) -> Iterator[Finding]:
    """PF23: block reuse or chunked prefill of an engine without paged context attention."""
    engine, runtime = _engine(case), case.plan.runtime
    if engine is not None:
        wants = {"wants_reuse": runtime.enable_block_reuse.value, "wants_chunks": runtime.chunked_prefill.value}
        yield from rules.reuse(engine, case.plan.release.value, **wants)


def image(case: Case) -> Iterator[Finding]:
    """PF19: a container that builds with another TensorRT than the release serves with."""
    build = case.plan.build
    if build is None or build.image is None or build.runner.value not in CONTAINERS:
        return
    month = re.search(_MONTH, build.image.value)
    brings = container(month[1]) if month else None
    if brings is not None and brings.trtllm != case.plan.release.value:
        engine = EngineFacts(version=brings.trtllm, tensorrt=brings.tensorrt)
        yield from rules.serving(engine, ServingFacts(case.plan.release.value))


def _engine(case: Case) -> EngineFacts | None:
    """Return what ``config.json`` of the engine would say; None for a plan that builds none."""
    if case.plan.build is None:
        return None
    options = {name: decided.value for name, decided in case.plan.build.options.items()}
    numbers = {name.removeprefix("--"): value for name, value in options.items() if name.startswith("--max_")}
    dtype = options.get("--logits_dtype")
    return EngineFacts(
        version=case.plan.release.value,
        dtype=case.plan.model.dtype,
        logits_dtype=str(dtype) if dtype else None,
        limits={name: value for name, value in numbers.items() if isinstance(value, int)},
        heads=max((-(-one.heads // case.split.tensor) for one in case.plan.model.attentions), default=None),
        plugins={name.removeprefix("--"): value for name, value in options.items()},
        gathers_logits=any(options.get(name) is True for name in _GATHER),
    )


RULES = (
    Rule("PF16", TITLES["PF16"], plugins, keys=("build.options", "toolchain")),
    Rule("PF17", TITLES["PF17"], workspace, keys=("build.options", "limits", "toolchain")),
    Rule("PF21", TITLES["PF21"], repository, keys=("build.options", "toolchain")),
)
