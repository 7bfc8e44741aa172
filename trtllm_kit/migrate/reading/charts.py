"""Reads values of a Helm chart and compose files: what they start can be read, the rest is the chart's own (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.migrate.found import Reader, Setting, Where
from trtllm_kit.migrate.reading.manifests import is_compose, resources, variables
from trtllm_kit.migrate.reading.named import Named, releases_in, serves
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.migrate.reading.programs import Text, is_program, mentions, read_words
from trtllm_kit.migrate.reading.scripts import Said, Shell, read_shell
from trtllm_kit.shell.values import Argument, Scope
from trtllm_kit.upstream.program_options import BUILD, SERVE, options_of
from trtllm_kit.yaml_lines import Document, Path, YamlError, documents

_ENVIRONMENT = frozenset({"env", "extraEnv", "envVars", "environment", "extraEnvVars"})
_STARTS = frozenset({"command", "args", "extraArgs", "entrypoint"})
_REPLICAS = frozenset({"replicas", "replicaCount"})
_COMPOSE = {"shm_size": "shm_size", "ipc": "ipc", "runtime": "runtime", "container_name": "name"}
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def read_values(raw: bytes, shell: Shell) -> Iterator[Said]:
    """Yield what the values of a chart say: images, variables, commands, resources; every other value is not read."""
    try:
        found = documents(raw)
    except YamlError as error:
        yield unread(Where(shell.file, error.line), "", f"no YAML: {error.said}")
        return
    for document in found:
        if is_compose(document.value):
            yield from _compose(document, shell)
        elif isinstance(document.value, Mapping):
            yield from _Values(document, shell).all()


class _Values:
    """Walks over one document; ``left`` are the places of values that no rule takes."""

    def __init__(self, document: Document, shell: Shell) -> None:
        self._document, self._shell, self._file = document, shell, shell.file
        self._left: list[Path] = []
        self._scope = Scope()

    def all(self) -> Iterator[Said]:
        for path in self._environments(self._document.value, ()):
            yield from variables(self._document, path, self._scope, self._file)
        yield from self._walk(self._document.value, ())
        yield from self._not_read()

    def _environments(self, value: Any, path: Path) -> Iterator[Path]:
        for key, inner in _inside(value):
            if key in _ENVIRONMENT and isinstance(inner, list | dict):
                yield (*path, key)
            else:
                yield from self._environments(inner, (*path, key))

    def _walk(self, value: Any, path: Path) -> Iterator[Said]:
        key = path[-1] if path else ""
        if key in _ENVIRONMENT and isinstance(value, list | dict):
            return
        if key == "resources" and isinstance(value, Mapping):
            yield from resources(self._document, path, self._file)
        elif isinstance(value, Mapping) and isinstance(value.get("repository"), str):
            yield from self._image(value, path)
        elif isinstance(value, list) and value and all(isinstance(one, str | int | float) for one in value):
            yield from self._words(value, path)
        elif isinstance(value, list | dict):
            for inner_key, inner in _inside(value):
                yield from self._walk(inner, (*path, inner_key))
        else:
            yield from self._leaf(value, path, str(key))

    def _image(self, value: Mapping[str, Any], path: Path) -> Iterator[Said]:
        tag = value.get("tag")
        text = f"{value['repository']}:{tag}" if tag is not None else str(value["repository"])
        yield from self._named(text, (*path, "repository"))
        for key, inner in value.items():
            if key not in ("repository", "tag"):
                yield from self._walk(inner, (*path, key))

    def _named(self, text: str, path: Path) -> Iterator[Said]:
        where = Where(self._file, self._document.line(path))
        yield Setting(Reader.CONTAINER, "image", text, where)
        yield from (Named(name, where) for name in releases_in(text))

    def _words(self, value: list[Any], path: Path) -> Iterator[Said]:
        """Read a list of words: a command with its options, behind the command beside it."""
        before = self._document.at((*path[:-1], "command")) if path[-1] == "args" else None
        given = [Argument(str(one), self._document.line((*path, number))) for number, one in enumerate(value)]
        if path[-1] == "command" and isinstance(self._document.at((*path[:-1], "args")), list):
            return
        for number, one in enumerate(before if isinstance(before, list) else ()):
            given.insert(number, Argument(str(one), self._document.line((*path[:-1], "command", number))))
        if any(is_program(one.text.rpartition("/")[2]) or mentions(one.text) for one in given):
            yield from _read(given, self._scope, self._shell)
        elif path[-1] in _STARTS:
            text = " ".join(one.text for one in given)
            yield unread(Where(self._file, given[0].line), text, "it names no program whose options are known")
        else:
            self._left.append(path)

    def _leaf(self, value: Any, path: Path, key: str) -> Iterator[Said]:
        line = self._document.line(path)
        if isinstance(value, str) and key != "image" and mentions(value):
            yield from read_shell(value, self._shell, self._scope.child(), line)
        elif isinstance(value, str) and serves(value) and ":" in value and key in ("image", "imageName", "name"):
            yield from self._named(value, path)
        elif key in _REPLICAS and isinstance(value, int):
            yield Setting(Reader.CONTAINER, "replicas", value, Where(self._file, line))
        elif path and len(path) > 1 and path[-2] == "nodeSelector":
            product = key == "nvidia.com/gpu.product"
            name, shown = ("gpu_product", value) if product else ("node_selector", f"{key}={value}")
            yield Setting(Reader.CONTAINER, name, shown, Where(self._file, line))
        else:
            self._left.append(path)

    def _not_read(self) -> Iterator[Said]:
        """Yield the values whose meaning the chart's templates hold: each that is named like an option by itself."""
        known = {option.flag.lstrip("-") for name in (BUILD, SERVE) for option in options_of(name).values()}
        others: dict[str, list[Path]] = {}
        for path in self._left:
            name = _CAPITAL.sub("_", str(path[-1])).lower().replace("-", "_")
            value = self._document.at(path)
            if name in known:
                why = f"its meaning is in the chart's templates; {name} is an option of the same name"
                where = Where(self._file, self._document.line(path))
                yield unread(where, f"{'.'.join(map(str, path))}: {value}", why)
            else:
                others.setdefault(str(path[0]), []).append(path)
        for top, paths in others.items():
            shown = ", ".join(".".join(map(str, path[1:])) or str(self._document.at(path)) for path in paths)
            where = Where(self._file, self._document.line(paths[0]))
            yield unread(where, f"{top}: {shown}", "values of the chart, whose meaning is in its templates")


def _compose(document: Document, shell: Shell) -> Iterator[Said]:
    """Yield what each service of a compose file says that builds or serves."""
    for service, body in document.value["services"].items():
        path: Path = ("services", service)
        scope = Scope()
        environment = list(variables(document, (*path, "environment"), scope, shell.file))
        read = list(_command(document, path, scope, shell))
        image = body.get("image") if isinstance(body, Mapping) else None
        if not read and not (isinstance(image, str) and serves(image)):
            continue
        where = Where(shell.file, document.line((*path, "image")))
        if isinstance(image, str):
            yield Setting(Reader.CONTAINER, "image", image, where)
            yield from (Named(name, where) for name in releases_in(image))
        yield from (*read, *environment)
        for key, name in _COMPOSE.items():
            if key in body:
                yield Setting(Reader.CONTAINER, name, body[key], Where(shell.file, document.line((*path, key))))
        for key, name in (("ports", "publish"), ("volumes", "volume")):
            for number, one in enumerate(body.get(key) or ()):
                yield Setting(Reader.CONTAINER, name, one, Where(shell.file, document.line((*path, key, number))))
        devices = (*path, "deploy", "resources", "reservations", "devices")
        for number, one in enumerate(document.at(devices) or ()):
            count = one.get("count") if isinstance(one, Mapping) else None
            if count is not None:
                yield Setting(
                    Reader.CONTAINER, "gpus", count, Where(shell.file, document.line((*devices, number, "count")))
                )


def _command(document: Document, path: Path, scope: Scope, shell: Shell) -> Iterator[Said]:
    given: list[Argument] = []
    for key in ("entrypoint", "command"):
        value, line = document.at((*path, key)), document.line((*path, key))
        if isinstance(value, list):
            given += [Argument(str(one), document.line((*path, key, number))) for number, one in enumerate(value)]
        elif isinstance(value, str):
            yield from read_shell(value, shell, scope.child(), line)
    yield from _read(given, scope, shell)


def _read(given: list[Argument], scope: Scope, shell: Shell) -> Iterator[Said]:
    for said in read_words(given, scope, shell.file, shell.version):
        if isinstance(said, Text):
            yield from read_shell(said.text, shell, said.scope, said.line)
        else:
            yield said


def _inside(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
