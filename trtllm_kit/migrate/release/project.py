"""What stands in a project's folder that a TensorRT-LLM release reads: found by looking, not by name alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from trtllm_kit.errors import CannotDo, NotLinted, storage_error
from trtllm_kit.light import dataclass
from trtllm_kit.lint.kinds import LOOKED_FOR, is_manifest, kind_of
from trtllm_kit.lint.read import read_bytes
from trtllm_kit.migrate.release.keys import sections
from trtllm_kit.shell.dockerfile import NAMES as DOCKERFILES
from trtllm_kit.upstream.llm_api import llm_api_keys
from trtllm_kit.yaml_lines import YamlError, parse_yaml

_PASSED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".tox", ".venv", "venv", "site-packages"})
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
_PROFILE = frozenset({"trtllm_version", "hardware", "base"})
_MOST_FILES, _MOST_LEVELS = 20_000, 24
_RULES = (
    re.compile(rb"^\s*(?:- )?(?:alert|record)\s*:", re.MULTILINE),
    re.compile(rb"^\s*(?:- )?expr\s*:", re.MULTILINE),
)
_EXPR = re.compile(rb'"expr"\s*:')


class What(StrEnum):
    """Kinds of things."""

    LINTED = "linted"
    """What ``trtkit lint`` reads by itself."""
    DOCUMENT = "LLM-API YAML"
    SCRIPT = "shell script"
    DOCKERFILE = "Dockerfile"
    MANIFEST = "Kubernetes manifest"
    PROFILE = "deploy profile"
    RULES = "Prometheus rules"
    DASHBOARD = "dashboard"


@dataclass(frozen=True)
class Thing:
    """One thing that a release may break."""

    path: Path
    what: What


@dataclass(frozen=True)
class NotRead:
    """A file or folder that could not be read, and why."""

    path: Path
    why: str


@dataclass(frozen=True)
class Project:
    """All that was found."""

    things: tuple[Thing, ...]
    not_read: tuple[NotRead, ...]


def look(folder: Path) -> Project:
    """Return the things in a folder and below, in the order of their paths; links to folders are not followed.

    Repositories, engines, checkpoints and models are one thing each. Raises ``NotLinted`` where nothing stands, and
    ``StorageError`` for the folder itself.
    """
    walk = _Walk()
    if not folder.exists():
        raise NotLinted(f"{folder} cannot be looked through", why="nothing stands there", hint="check the path")
    if folder.is_dir():
        walk.folder(folder, 0)
    else:
        walk.file(folder)
    return Project(tuple(walk.things), tuple(walk.not_read))


class _Walk:
    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.not_read: list[NotRead] = []
        self.files = 0

    def folder(self, folder: Path, level: int) -> None:
        """Look into a folder: one thing as a whole, or what stands in it."""
        try:
            entries = sorted(os.scandir(folder), key=lambda one: one.name)
        except OSError as error:
            if level == 0:
                raise storage_error(error, "looking into the project") from None
            self._cannot(folder, error.strerror or str(error))
            return
        if level > _MOST_LEVELS or any(one.name == "pyvenv.cfg" for one in entries):
            return
        if self._is_one_thing(folder):
            self.things.append(Thing(folder, What.LINTED))
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _PASSED:
                    self.folder(Path(entry.path), level + 1)
            elif not entry.is_symlink() or not Path(entry.path).is_dir():
                self.file(Path(entry.path))

    def file(self, path: Path) -> None:
        """Say what a file is, where a release reads it."""
        if self.files >= _MOST_FILES:
            if self.files == _MOST_FILES:
                self._cannot(path, f"more than {_MOST_FILES:,} files: this and what follows was not looked at")
                self.files += 1
            return
        self.files += 1
        if path.suffix in SCRIPTS:
            self._add(path, What.SCRIPT)
        elif DOCKERFILES.fullmatch(path.name):
            self._add(path, What.DOCKERFILE)
        elif path.suffix in (".yaml", ".yml"):
            self._yaml(path)
        elif path.suffix in (".rules", ".json"):
            self._expressions(path)

    def _add(self, path: Path, what: What) -> None:
        if self._bytes(path) is not None:
            self.things.append(Thing(path, what))

    def _yaml(self, path: Path) -> None:
        raw = self._bytes(path)
        if raw is None:
            return
        if all(mark.search(raw) for mark in _RULES):
            self.things.append(Thing(path, What.RULES))
        elif is_manifest(raw) or b"image:" in raw:
            self.things.append(Thing(path, What.MANIFEST))
        else:
            self._mapping(path, raw)

    def _mapping(self, path: Path, raw: bytes) -> None:
        try:
            data = parse_yaml(raw).data
        except YamlError as error:
            if _names_llm_api(raw):
                self._cannot(path, f"it is no YAML that a server loads: {error}")
            return
        if _PROFILE & data.keys() and _is_profile(data):
            self.things.append(Thing(path, What.PROFILE))
        elif _is_llm_api(data):
            self.things.append(Thing(path, What.DOCUMENT))

    def _expressions(self, path: Path) -> None:
        raw = self._bytes(path, tell=False)
        if raw is not None and _EXPR.search(raw):
            self.things.append(Thing(path, What.DASHBOARD))

    def _bytes(self, path: Path, *, tell: bool = True) -> bytes | None:
        try:
            return read_bytes(path)
        except CannotDo as error:
            if tell:
                self._cannot(path, error.why)
        return None

    def _is_one_thing(self, folder: Path) -> bool:
        try:
            kind_of(folder)
        except NotLinted as error:
            if error.problems != LOOKED_FOR:
                self._cannot(folder, error.why)
            return False
        except CannotDo as error:
            self._cannot(folder, error.why)
            return False
        return True

    def _cannot(self, path: Path, why: str) -> None:
        self.not_read.append(NotRead(path, why))


def _is_profile(data: dict[str, Any]) -> bool:
    from trtllm_kit.spec.profile import DeployProfile

    return data.keys() <= {*DeployProfile.model_fields, "base"}


def _is_llm_api(data: dict[str, Any]) -> bool:
    """Whether at least half of the keys are the LLM API's in some release, or it is one of its known sections."""
    known = sum(key in _names() for key in data)
    return bool(data) and 2 * known >= len(data)


def _names() -> frozenset[str]:
    keys = (row.key for row in (*llm_api_keys(early=True), *llm_api_keys()))
    return frozenset(key for key in keys if "." not in key) | frozenset(key for key in sections() if "." not in key)


def _names_llm_api(raw: bytes) -> bool:
    return any(line.partition(b":")[0].decode("utf-8", "replace") in _names() for line in raw.splitlines())


def lines_of(raw: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers."""
    yield from enumerate(raw.decode("utf-8", errors="replace").splitlines(), start=1)
