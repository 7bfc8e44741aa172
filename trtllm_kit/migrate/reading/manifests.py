"""Reads Kubernetes manifests and compose files: what their containers start, with what, on what (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from trtllm_kit.lint.manifests import pods
from trtllm_kit.migrate.found import Reader, Setting, Where
from trtllm_kit.migrate.reading.named import Named, releases_in, serves
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.migrate.reading.programs import Text, mentions, read_words
from trtllm_kit.migrate.reading.repositories import read_model
from trtllm_kit.migrate.reading.scripts import Said, Shell, read_shell
from trtllm_kit.shell.values import Argument, Scope
from trtllm_kit.yaml_lines import Document, Path, YamlError, documents

_GPU = "nvidia.com/gpu"
_PRODUCT = "nvidia.com/gpu.product"
_SHM = "/dev/shm"  # noqa: S108  the place itself, no file in it
_WAITS = frozenset({"sleep", "tail", "pause"})
_VARIABLE = re.compile(r"\$\$|\$\((\w+)\)")
_RESOURCES = {_GPU: "gpus", "memory": "memory", "cpu": "cpu"}


def read_manifests(raw: bytes, shell: Shell) -> Iterator[Said]:
    """Yield what the documents of a file say of containers that build or serve; a broken file is not read."""
    try:
        found = documents(raw)
    except YamlError as error:
        lines = raw.decode("utf-8", errors="replace").split("\n")
        text = lines[error.line - 1] if error.line <= len(lines) else ""
        why = "a template of Helm: give what `helm template` makes of it" if b"{{" in raw else f"no YAML: {error.said}"
        yield unread(Where(shell.file, error.line), text, why)
        return
    for document in found:
        for path in pods(document.value):
            yield from _pod(document, path, shell)
        yield from _texts(document, shell)


def _waits(words: list[Argument]) -> bool:
    """Whether a container starts what does nothing, by itself or as all that a shell is given: a worker of a group."""
    texts = [words[0].text, *(two.text for one, two in pairwise(words) if one.text.startswith("-") and "c" in one.text)]
    last = texts[-1].split()
    return bool(last) and last[0].rpartition("/")[2] in _WAITS and not set(last) & {"&&", "||", ";", "|"}


def is_compose(value: object) -> bool:
    """Whether a document is one of docker compose."""
    services = value.get("services") if isinstance(value, Mapping) else None
    return isinstance(services, Mapping) and any("image" in _mapping(one) for one in services.values())


def _pod(document: Document, path: Path, shell: Shell) -> Iterator[Said]:
    pod = _mapping(document.at(path))
    said: list[Said] = []
    for kind in ("initContainers", "containers"):
        for number, _ in enumerate(_list(pod.get(kind))):
            said += container(document, (*path, kind, number), shell)
    if not said:
        return
    yield from said
    yield from _around(document, path, pod, shell.file)


def _around(document: Document, path: Path, pod: Mapping[str, Any], file: str) -> Iterator[Said]:
    """Yield what holds for the whole pod: its nodes, shared memory and copies."""
    for label, value in _mapping(pod.get("nodeSelector")).items():
        where = Where(file, document.line((*path, "nodeSelector", label)))
        name, shown = ("gpu_product", value) if label == _PRODUCT else ("node_selector", f"{label}={value}")
        yield Setting(Reader.CONTAINER, name, shown, where)
    if pod.get("hostIPC") is True:
        yield Setting(Reader.CONTAINER, "ipc", "host", Where(file, document.line((*path, "hostIPC"))))
    for number, volume in enumerate(_list(pod.get("volumes"))):
        memory = _mapping(_mapping(volume).get("emptyDir"))
        if memory.get("medium") == "Memory" and "sizeLimit" in memory:
            where = Where(file, document.line((*path, "volumes", number, "emptyDir", "sizeLimit")))
            yield Setting(Reader.CONTAINER, "shm_size", memory["sizeLimit"], where)
    for end in range(len(path), -1, -1):
        above = _mapping(document.at(path[:end]))
        for key, name in (("replicas", "replicas"), ("size", "group_size")):
            if isinstance(above.get(key), int):
                yield Setting(Reader.CONTAINER, name, above[key], Where(file, document.line((*path[:end], key))))


def container(document: Document, path: Path, shell: Shell) -> Iterator[Said]:
    """Yield what one container says; nothing for one that neither builds nor serves."""
    body = _mapping(document.at(path))
    image, scope = body.get("image"), Scope()
    environment = list(variables(document, (*path, "env"), scope, shell.file))
    given = _given(document, path, scope)
    read = list(_started(given, scope, shell))
    others = not read or given[0].text.startswith("-")
    if others and not (isinstance(image, str) and serves(image)):
        return
    if isinstance(image, str):
        where = Where(shell.file, document.line((*path, "image")))
        yield Setting(Reader.CONTAINER, "image", image, where)
        yield from (Named(name, where) for name in releases_in(image))
    if given and not read and not _waits(given):
        whole = " ".join(one.text for one in given)
        yield unread(Where(shell.file, given[0].line), whole, "it names no program whose options are known")
    yield from read
    yield from environment
    if body.get("envFrom"):
        yield unread(Where(shell.file, document.line((*path, "envFrom"))), "envFrom", "its variables stand elsewhere")
    yield from resources(document, (*path, "resources"), shell.file)
    yield from _probes(document, path, body, shell.file)


def _started(given: list[Argument], scope: Scope, shell: Shell) -> Iterator[Said]:
    for said in read_words(given, scope, shell.file, shell.version):
        if isinstance(said, Text):
            yield from read_shell(said.text, shell, said.scope, said.line)
        else:
            yield said


def _given(document: Document, path: Path, scope: Scope) -> list[Argument]:
    """Return the words that a container starts with, ``$(NAME)`` filled in."""
    found: list[Argument] = []
    for key in ("command", "args"):
        for number, word in enumerate(_list(document.at((*path, key)))):
            found.append(_filled(str(word), document.line((*path, key, number)), scope))
    return found


def _filled(text: str, line: int, scope: Scope) -> Argument:
    why = ""

    def one(match: re.Match[str]) -> str:
        nonlocal why
        if match[0] == "$$":
            return "$"
        value = scope.values.get(match[1])
        scope.used.add(match[1])
        if not value or value[0].why:
            why = f"the variable {match[1]} has no value in this file"
            return match[0]
        return value[0].text

    shell_text = "\n" in text or " " in text.strip()  # $(NAME) is then a command of the shell's as well
    filled = text if shell_text and not scope.values else _VARIABLE.sub(one, text)
    return Argument(filled, line, "" if shell_text else why)


def variables(document: Document, path: Path, scope: Scope, file: str) -> Iterator[Said]:
    """Yield environment variables, a list of names with values or a mapping, and set them."""
    held = document.at(path)
    pairs: list[tuple[Path, str, Any]] = []
    if isinstance(held, Mapping):
        pairs = [((*path, str(name)), str(name), value) for name, value in held.items()]
    for number, one in enumerate(_list(held)):
        entry = _mapping(one)
        if "name" in entry:
            pairs.append(((*path, number), str(entry["name"]), entry.get("value", entry.get("valueFrom"))))
        elif isinstance(one, str):
            name, _, text = one.partition("=")
            pairs.append(((*path, number), name, text if "=" in one else None))
    for place, name, value in pairs:
        where = Where(file, document.line(place))
        if isinstance(value, Mapping) and "secretKeyRef" not in value:
            yield unread(where, name, "its value is known to the cluster alone")
            continue
        plain = dict(value) if isinstance(value, Mapping) else _text(value)
        if isinstance(plain, str):
            filled = _filled(plain, where.line, scope)
            scope.values[name] = (filled,)
            scope.exported.add(name)
            plain = filled.text
            if filled.why:
                yield unread(where, f"{name}={plain}", filled.why)
                continue
        yield Setting(Reader.ENVIRONMENT, name, plain, where)


def _text(value: object) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def resources(document: Document, path: Path, file: str) -> Iterator[Said]:
    """Yield the GPUs, memory and CPUs that are asked for."""
    for kind in ("limits", "requests"):
        for key, value in _mapping(document.at((*path, kind))).items():
            if key in _RESOURCES:
                shown = int(value) if str(value).isdigit() else value
                yield Setting(Reader.CONTAINER, _RESOURCES[key], shown, Where(file, document.line((*path, kind, key))))


def _probes(document: Document, path: Path, body: Mapping[str, Any], file: str) -> Iterator[Said]:
    for number, port in enumerate(_list(body.get("ports"))):
        if "containerPort" in _mapping(port):
            where = Where(file, document.line((*path, "ports", number, "containerPort")))
            yield Setting(Reader.CONTAINER, "port", port["containerPort"], where)
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = _mapping(_mapping(body.get(kind)).get("httpGet")).get("path")
        if isinstance(asked, str):
            name = f"{kind.removesuffix('Probe')}_path"
            yield Setting(Reader.CONTAINER, name, asked, Where(file, document.line((*path, kind, "httpGet", "path"))))


def _texts(document: Document, shell: Shell) -> Iterator[Said]:
    """Yield what the files of a ConfigMap say."""
    if _mapping(document.value).get("kind") != "ConfigMap":
        return
    for name, text in _mapping(document.value.get("data")).items():
        line = document.line(("data", name))
        if isinstance(text, str) and name.endswith("config.pbtxt"):
            yield from read_model(("\n" * (line - 1) + text).encode(), shell.file, name)
        elif isinstance(text, str) and (name.endswith(".sh") or mentions(text)):
            yield from read_shell(text, shell, Scope(), line)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
