"""Everything in a project that a release breaks: what ``trtkit lint`` finds when it is asked for that release."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.errors import CannotDo, KitError, ProfileError, UsageError
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import Kind, kind_of
from trtllm_kit.lint.read import read_bytes
from trtllm_kit.lint.report import Located, located
from trtllm_kit.migrate.release.project import SCRIPTS, NotRead, Thing, What, lines_of, look
from trtllm_kit.plan.given.commands import Around, Command, command_line
from trtllm_kit.plan.given.finding import found
from trtllm_kit.plan.given.other_release import other_release
from trtllm_kit.plan.given.shown_metrics import shown_metrics
from trtllm_kit.plan.llm_options import SECTION as LLM_OPTIONS
from trtllm_kit.upstream.facts import in_range
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.releases import known_releases, release

if TYPE_CHECKING:
    from trtllm_kit.migrate.found import Setting
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile

Ask = Callable[[str, str], "tuple[LoadedProfile, Hardware]"]
"""Reads a profile by its path, for a release."""
_OF_DOCUMENTS = ("PF23", "PF24", "PF25", "PF51")
_OF_ENGINES = ("PF15", "PF16", "PF17", "PF19", "PF21", "PF41")
_MOST_SHOWN = 120
"""Letters of a line that a finding shows."""


@dataclass(frozen=True)
class Broken:
    """One finding, and what mends it."""

    at: Located
    """Its file from the project's folder."""
    kind: str
    mend: str
    """A command, or one key to change; empty where the finding's own advice is all there is."""


@dataclass(frozen=True)
class Checked:
    """A project, asked for one release."""

    release: str
    things: tuple[tuple[str, str], ...]
    """Path and kind of what was read."""
    broken: tuple[Broken, ...]
    not_read: tuple[NotRead, ...]


def check_project(
    folder: Path, target: str, ask: Ask, *, source: str | None = None, model: Path | None = None
) -> Checked:
    """Return what ``target`` breaks of a project.

    With ``source``, the release that it runs on now, only what that release does not find fault with. ``model`` is a
    Hugging Face folder that its profiles are planned for. Raises ``StorageError``.
    """
    project = look(folder)
    base = folder if folder.is_dir() else folder.parent
    not_read = list(project.not_read)
    model = model or _only_model(project.things)
    broken: list[Broken] = []
    things = []
    for thing in project.things:
        name = thing.path.relative_to(base).as_posix()
        try:
            kind, now = _findings(thing, target, ask, model)
            before = _findings(thing, source, ask, model)[1] if source is not None else ()
            now = (*now, *_changed(thing, source, target))
        except CannotDo as error:
            not_read.append(NotRead(thing.path, error.why))
            continue
        things.append((name, kind))
        old = {_alike(one, source or "") for one in before}
        new = (one for one in now if _alike(one, target) not in old)
        mend = _Mender(thing, target, source)
        broken += (Broken(_under(name, one, thing), kind, mend.of(one)) for one in new)
    order = list(Severity)
    shown = sorted(broken, key=lambda one: (order.index(one.at.finding.severity), one.at.file, one.at.line or 0))
    return Checked(target, tuple(things), tuple(shown), tuple(not_read))


def _changed(thing: Thing, source: str | None, target: str) -> Iterator[Located]:
    """Yield what both releases take and do not do alike."""
    from trtllm_kit.migrate.release.changed import changed_in_document, changed_in_script

    of_kind = {What.DOCUMENT: changed_in_document, What.SCRIPT: changed_in_script}.get(thing.what)
    if source is not None and of_kind is not None:
        yield from of_kind(thing.path, source, target)


def _only_model(things: Iterable[Thing]) -> Path | None:
    """Return the Hugging Face folder of a project that has one, and no other."""
    found_there = [one.path for one in things if one.what is What.LINTED and kind_of(one.path) is Kind.MODEL]
    return found_there[0] if len(found_there) == 1 else None


def _findings(thing: Thing, version: str, ask: Ask, model: Path | None) -> tuple[str, tuple[Located, ...]]:
    """Return what a thing is, and what the rules say of it for a release."""
    if thing.what is What.PROFILE:
        return thing.what.value, tuple(_of_profile(thing.path, version, ask, model))
    if thing.what in (What.RULES, What.DASHBOARD):
        return thing.what.value, tuple(_of_expressions(thing.path, version))
    images = tuple(_of_images(thing.path, version)) if thing.path.is_file() else ()
    from trtllm_kit.lint.manifests import lint_manifest
    from trtllm_kit.lint.run import lint

    if thing.what is What.MANIFEST:
        read = lint_manifest(thing.path, thing.what.value, Context(version))
        return read.kind, (*read.findings, *_of_settings(thing.path, version), *images)
    read = lint(thing.path, Context(version))
    inside = _of_documents(thing.path, version) if thing.what is What.SCRIPT else ()
    filled = _servers(thing.path, version) if thing.what is What.DOCKERFILE else ()
    return read.kind, (*read.findings, *inside, *filled, *images)


def _of_profile(path: Path, version: str, ask: Ask, model: Path | None) -> Iterator[Located]:
    try:
        loaded, hardware = ask(str(path), version)
    except UsageError as error:
        problems = error.problems if isinstance(error, ProfileError) and error.problems else (error.why,)
        yield from (_located(path, _error(error, problem), problem) for problem in problems)
        return
    lines = dict(_top_lines(path))
    asked, known = loaded.profile.toolchain, release(version)
    if asked != "auto" and asked not in known.toolchains:
        has = ", ".join(known.toolchains)
        message = f"Release {version} has no toolchain {asked}."
        finding = found("KIT-BUILD-002", Severity.ERROR, message, f"toolchain {asked}; it has {has}", "toolchain: auto")
        yield Located(finding, path.name, lines.get("toolchain"))
    elif model is not None:
        try:
            lines |= dict(_option_lines(loaded, path))
            yield from located(_planned(loaded, hardware, model), path.name, lines)
        except KitError as error:
            yield Located(_error(error, error.why), path.name)


def _planned(loaded: LoadedProfile, hardware: Hardware, model: Path) -> Iterable[Finding]:
    from trtllm_kit.plan.decide import make_plan
    from trtllm_kit.spec.load import beside_target, load_model

    return make_plan(load_model(model), beside_target(loaded, model), hardware).findings


def _error(error: KitError, problem: str) -> Finding:
    return found(error.code, Severity.ERROR, f"{error.what}.", problem, error.hint)


def _located(path: Path, finding: Finding, problem: str) -> Located:
    line = re.search(r":(\d+):", problem)
    return Located(finding, path.name, int(line[1]) if line else None)


def _top_lines(path: Path) -> Iterator[tuple[str, int]]:
    for number, line in lines_of(read_bytes(path)):
        key, colon, _ = line.partition(":")
        if colon and key and not key[0].isspace() and not key.startswith("#"):
            yield key, number


def _option_lines(loaded: LoadedProfile, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the keys of the LLM API that a profile sets itself, and their place in it, with the line of each."""
    for key, origin in loaded.origins.items():
        file, _, line = origin.rpartition(":")
        name = key.removeprefix(f"{LLM_OPTIONS}.")
        if name != key and file == str(path):
            yield from ((name, int(line)), (key, int(line)))


def _of_documents(path: Path, version: str) -> Iterator[Located]:
    """Yield what the rules say of LLM-API documents that a script writes itself."""
    from trtllm_kit.lint.documents import document_findings
    from trtllm_kit.migrate.release.serve_words import Script
    from trtllm_kit.yaml_lines import parse_yaml

    for here in Script(read_bytes(path).decode("utf-8", errors="replace")).documents():
        if here.expands:
            continue
        for one in document_findings(parse_yaml(here.text.encode()), path.name, version):
            yield Located(one.finding, path.name, None if one.line is None else one.line + here.line - 1)


def _of_settings(path: Path, version: str) -> Iterator[Located]:
    """Yield what the rules about commands say of each in a manifest, a compose file or the values of a chart."""
    from trtllm_kit.migrate.found import Reader
    from trtllm_kit.migrate.reading.path import commands

    read = (Reader.BUILD, Reader.CONVERT, Reader.QUANTIZE, Reader.SERVE)
    told: dict[Located, None] = {}
    for settings in commands(path):
        given = [one for one in settings if one.reader in read and one.name != "model"]
        if given:
            told |= dict.fromkeys(_of_command(given, path.name, version))
    yield from told
    yield from _servers(path, version)


def _of_command(given: list[Setting], file: str, version: str) -> Iterator[Located]:
    places = {_dashed(one.name): one.where.line for one in given}
    command = Command(given[0].reader.value, {_dashed(one.name): str(one.value) for one in given})
    for finding in command_line(command, Around(version, quantised=None)):
        at = next(located((finding,), file, places))
        yield Located(finding, file, at.line or given[0].where.line)


def _servers(path: Path, version: str) -> Iterator[Located]:
    """Yield that what a file fills in for engine servers starts nothing any more."""
    from trtllm_kit.migrate.found import Reader
    from trtllm_kit.migrate.reading.path import commands

    gone = failure("engine_flow_gone", version)
    if gone is None:
        return
    settings = (one for settings in commands(path) for one in settings)
    first = next((one for one in settings if one.reader in (Reader.PARAMETER, Reader.FILL)), None)
    if first is not None:
        message = (
            f"What is filled in here is for the backend that runs engines, which {gone.note} in release {version}."
        )
        finding = found("PF19", Severity.ERROR, message, f"{first.reader.value} {first.name}", "the llmapi model")
        yield Located(finding, path.name, first.where.line)


def _dashed(name: str) -> str:
    return f"--{name.rpartition('.')[2]}"


def _of_images(path: Path, version: str) -> Iterator[Located]:
    """Yield images and packages of another release, comments left out."""
    from trtllm_kit.migrate.reading.named import releases_in

    for number, line in lines_of(read_bytes(path)):
        if not line.lstrip().startswith("#"):
            named = (
                other_release(name, line.strip()[:_MOST_SHOWN], version) for name in dict.fromkeys(releases_in(line))
            )
            yield from (Located(finding, path.name, number) for findings in named for finding in findings)


def _of_expressions(path: Path, version: str) -> Iterator[Located]:
    """Yield metrics of rules or panels that the release does not show."""
    for number, line in lines_of(read_bytes(path)):
        yield from (Located(finding, path.name, number) for finding in shown_metrics(line, version))


def _alike(one: Located, version: str) -> tuple[object, ...]:
    """Return what makes two findings about different releases the same one."""
    texts = (one.finding.message, one.finding.compared)
    return (one.finding.rule, one.file, one.line, *(text.replace(version, "V") for text in texts))


def _under(name: str, one: Located, thing: Thing) -> Located:
    """Return a finding with its file from the project's folder."""
    if thing.path.is_file():
        return Located(one.finding, name, one.line)
    return Located(one.finding, f"{name}/{one.file}" if one.file else name, one.line)


class _Mender:
    """Says which command mends a finding about a thing."""

    def __init__(self, thing: Thing, target: str, source: str | None) -> None:
        self.thing, self.target, self.source = thing, target, source

    def of(self, one: Located) -> str:
        """Return the command or change; empty where the finding's own advice is all there is."""
        what, rule, path = self.thing.what, one.finding.rule, _quoted(self.thing.path)
        if what is What.PROFILE:
            return f"trtllm_version: {self.target}, and what the finding says"
        if what in (What.RULES, What.DASHBOARD):
            return f"trtkit migrate engine ENGINE --to {self.target} --rules {path}" if what is What.RULES else ""
        if rule in _OF_DOCUMENTS or (rule == "PF48" and what is What.SCRIPT):
            return self._carried_over(self.thing.path / one.file if self.thing.path.is_dir() else self.thing.path)
        if rule in _OF_ENGINES:
            return f"trtkit migrate engine {path} --to {self.target}"
        return ""

    def _carried_over(self, file: Path) -> str:
        """Return the command for a document or script; nothing for what is written into something else."""
        if not file.is_file() or file.suffix not in (".yaml", ".yml", *SCRIPTS) or self.thing.what is What.MANIFEST:
            return ""
        now = self.source or (_newest_that_takes(file) if file.suffix in (".yaml", ".yml") else "RELEASE")
        return f"trtkit migrate yaml {_quoted(file)} --from {now} --to {self.target} --in-place"


def _newest_that_takes(file: Path) -> str:
    """Return the newest release whose rules have nothing against a document."""
    from trtllm_kit.migrate.release.moves import problems
    from trtllm_kit.migrate.release.yaml_file import OTHERS
    from trtllm_kit.yaml_lines import parse_yaml

    given = {key: value for key, value in parse_yaml(read_bytes(file)).data.items() if key not in OTHERS}
    known = (name for name in reversed(known_releases()) if in_range(name, "0.17", None))
    return next((name for name in known if not problems(given, name)), "RELEASE")


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
