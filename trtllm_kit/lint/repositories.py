"""Lints a Triton repository, whoever rendered it: every ``config.pbtxt``, the YAML of llmapi models, engines beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.errors import NotLinted
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.engines import engine_findings, holds_engine, read_engine
from trtllm_kit.lint.kinds import MODEL_CONFIG
from trtllm_kit.lint.model_config import Config, read_model_config
from trtllm_kit.lint.read import names_in, read_bytes, read_json
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.plan.given.engines import reuse
from trtllm_kit.plan.given.ensembles import ensemble
from trtllm_kit.plan.given.facts import EngineFacts, LaunchFacts, RepositoryFacts, TritonModel
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.given.llmapi_model import SECTION, llmapi_model
from trtllm_kit.plan.given.parameters import parameters
from trtllm_kit.plan.given.repositories import repository
from trtllm_kit.plan.given.triton_models import triton_model
from trtllm_kit.upstream.releases import release as release_named

if TYPE_CHECKING:
    from trtllm_kit.yaml_lines import YamlError

ARGUMENTS = "model.yaml"
_PLAN = "trtkit-plan.json"
_OWN_KEYS = frozenset({SECTION, "logits_post_processors"})
"""Keys of ``model.yaml`` that the model files take themselves."""
_ENGINE_PATH = "gpt_model_path"
_ORCHESTRATOR = "TRTLLM_ORCHESTRATOR"
_ENGINE_BACKENDS = ("tensorrtllm", "tensorrt_llm")
_ON = frozenset({"true", "True", "TRUE", "1"})


@dataclass(frozen=True)
class _Model:
    """One folder of a repository."""

    folder: str
    config: Config
    versions: tuple[str, ...]
    arguments: str = ""
    """Place of its LLM-API document inside the repository; empty without one."""

    @property
    def file(self) -> str:
        """Place of its configuration inside the repository."""
        return f"{self.folder}/{MODEL_CONFIG}" if self.folder else MODEL_CONFIG


def lint_repository(path: Path, kind: str, context: Context) -> Read:
    """Lint a repository, or one model of one; raises ``NotLinted`` and ``StorageError``."""
    models = _models(path)
    engine, where = _engine(path, models, context)
    release, said_by = context.settle(_own_release(path) or (engine.version if engine else None))
    found = [one for model in models for one in _of_model(path, model, release)]
    found += _together(models, engine, release, context)
    found += located(_leader(models, engine, release, context), "")
    if engine is not None:
        found += (_elsewhere(one, where) for one in engine_findings(engine, "", release, context, reuses=False))
        found += _reuse(models, engine, release)
    facts = {"models": ", ".join(model.config.model.name for model in models), "engine": where or "not here"}
    return Read(kind, release, said_by, facts, in_order(found))


def _elsewhere(one: Located, folder: str) -> Located:
    """Return a finding about a file of a folder that lies elsewhere."""
    return one._replace(file=f"{folder}/{one.file}" if one.file else folder)


def _models(path: Path) -> list[_Model]:
    if MODEL_CONFIG in names_in(path):
        return [_model(path, "")]
    folders = [name for name in names_in(path) if (path / name).is_dir()]
    return [_model(path / name, name) for name in folders if MODEL_CONFIG in names_in(path / name)]


def _model(folder: Path, name: str) -> _Model:
    versions = tuple(one for one in names_in(folder) if one.isdigit() and (folder / one).is_dir())
    arguments = next((f"{one}/{ARGUMENTS}" for one in versions if ARGUMENTS in names_in(folder / one)), "")
    config = read_model_config(read_bytes(folder / MODEL_CONFIG), folder.resolve().name, llmapi=bool(arguments))
    return _Model(name, config, versions, arguments and f"{name}/{arguments}".lstrip("/"))


def _of_model(path: Path, model: _Model, release: str) -> Iterator[Located]:
    """Yield what one model's folder says by itself."""
    config = model.config
    for finding, line in config.problems:
        yield Located(finding, model.file, line)
    if not config.readable:
        return
    folder = model.folder or path.resolve().name
    yield from located(triton_model(config.model, folder, model.versions, release), model.file, config.places)
    yield from located(parameters(config.model, release), model.file, config.places)
    if model.arguments:
        yield from _arguments(path, model, release)


def _arguments(path: Path, model: _Model, release: str) -> Iterator[Located]:
    """Yield what the rules say of an llmapi model's YAML."""
    from trtllm_kit.lint.documents import document_findings
    from trtllm_kit.yaml_lines import YamlError, parse_yaml

    try:
        read = parse_yaml(read_bytes(path / model.arguments))
    except YamlError as error:
        yield Located(_no_yaml(model, error), model.arguments, error.line)
        return
    found = llmapi_model(model.config.model, read.data, release, states_policy=model.config.states_policy)
    yield from located(found, model.arguments, read.places)
    yield from document_findings(read, model.arguments, release, _OWN_KEYS)


def _no_yaml(model: _Model, error: YamlError) -> Finding:
    return Finding(
        rule="PF24",
        severity=Severity.ERROR,
        message=f"{ARGUMENTS} is no YAML that the model's files can load.",
        compared=f"{model.config.model.name}: {error}",
        suggestion="mend that line",
    )


def _together(models: list[_Model], engine: EngineFacts | None, release: str, context: Context) -> Iterator[Located]:
    """Yield what the models say together; a rule that names a model is shown at that model's file."""
    read = [model for model in models if model.config.readable]
    image = release_named(release).image if context.loaded is not None else None
    facts = RepositoryFacts(
        tuple(model.config.model for model in read), release, engine, _paths(read, context), image, client_tensors={}
    )
    yield from _by_model(repository(facts), read)
    members = {model.config.model.name: model.config.member for model in models}
    for model in read:
        if model.config.steps:
            yield from located(ensemble(model.config.model.name, members, release), model.file, model.config.places)


def _by_model(found: Iterator[Finding], models: list[_Model]) -> Iterator[Located]:
    for finding in found:
        name = finding.compared.partition(":")[0]
        model = next((one for one in models if one.config.model.name == name), None)
        yield from located([finding], model.file if model else "", model.config.places if model else None)


def _paths(models: list[_Model], context: Context) -> dict[str, bool]:
    """Return which paths of the models are there, as far as this machine can say."""
    named = {model.config.model.parameters.get(key, "") for model in models for key in ("tokenizer_dir", _ENGINE_PATH)}
    looked = {text: context.here(text)[1] for text in sorted(named) if text and "${" not in text}
    return {text: there for text, there in looked.items() if there is not None}


def _engine(path: Path, models: list[_Model], context: Context) -> tuple[EngineFacts | None, str]:
    """Return the engine that a model names, where its folder is here, and that folder."""
    for model in models:
        place = model.config.model.parameters.get(_ENGINE_PATH, "")
        if not place or "${" in place or model.config.model.name != "tensorrt_llm":
            continue
        folder = path / context.here(place)[0]
        if holds_engine(folder):
            return read_engine(folder), place
    return None, ""


def _leader(models: list[_Model], engine: EngineFacts | None, release: str, context: Context) -> Iterator[Finding]:
    """Yield that one launch is asked to lead the ranks of several models: MPI ranks come with engines alone."""
    profile = context.loaded.profile if context.loaded is not None else None
    if profile is None:
        return
    names = [model.config.model.name for model in models if model.config.model.backend in _ENGINE_BACKENDS]
    ranks = engine.ranks if engine is not None else context.ranks or 1
    orchestrated = profile.environment.get(_ORCHESTRATOR) == "1"
    yield from launch(LaunchFacts(release, ranks=ranks, models=len(names), orchestrator=orchestrated))


def _reuse(models: list[_Model], engine: EngineFacts, release: str) -> Iterator[Located]:
    """Yield parameters that ask of the engine what it was not built for."""
    for model in models:
        asked: TritonModel = model.config.model
        wants = [asked.parameters.get(key) in _ON for key in ("enable_kv_cache_reuse", "enable_chunked_context")]
        if asked.name == "tensorrt_llm":
            found = reuse(engine, release, wants_reuse=wants[0], wants_chunks=wants[1])
            yield from located(found, model.file, model.config.places)


def _own_release(path: Path) -> str | None:
    """Return the release of a repository that trtkit composed."""
    if not (path / _PLAN).is_file():
        return None
    try:
        decided = read_json(path / _PLAN).get("release")
    except NotLinted:
        return None
    value = decided.get("value") if isinstance(decided, dict) else None
    return value if isinstance(value, str) else None
