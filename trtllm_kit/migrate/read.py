"""Reads what stands under a path (scripts, engines, repositories, manifests) as the settings somebody made."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from trtllm_kit.errors import NothingToMigrate, storage_error
from trtllm_kit.files import UnfitFile, read_file, what_is
from trtllm_kit.migrate.found import Found, Setting, Unread
from trtllm_kit.migrate.named import Named
from trtllm_kit.migrate.options import unread
from trtllm_kit.migrate.scripts import Said, Shell

_MOST_BYTES = 16 << 20
_MOST_FILES = 2_000
_MOST_LEVELS = 8
_PASSED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox"})
_DOCKERFILE = re.compile(r"(Dockerfile|Containerfile)(\..+)?|.+\.Dockerfile", re.IGNORECASE)
_VALUES = re.compile(r"(values|compose|docker-compose)[\w.-]*\.ya?ml")
_TEMPLATE = re.compile(rb"\{\{")
_LOOKED_FOR = (
    "config.json of an engine or of a TensorRT-LLM checkpoint",
    "config.pbtxt of a Triton model",
    "a script (.sh, or with #! at its beginning) or a Dockerfile that names trtllm-build, tritonserver and their like",
    "a Kubernetes manifest, a compose file or the values of a Helm chart that start them",
)
Read = Callable[[bytes, Shell], Iterator[Said]]


def found(path: Path) -> Found:
    """Return every setting under a path, with what could not be read.

    Raises ``NothingToMigrate`` where nothing of the kind stands, and ``StorageError``.
    """
    folder = path.is_dir()
    files = list(_files(path)) if folder else [path]
    said: list[Said] = []
    for file in files:
        name = file.relative_to(path).as_posix() if folder else file.name
        said += _read(file, name, alone=not folder)
    if not any(isinstance(one, Setting | Unread) for one in said):
        raise _nothing(path, len(files))
    return _whole(said)


def _whole(said: list[Said]) -> Found:
    """Return all that was said once, under the release that is named first."""
    named = [one for one in said if isinstance(one, Named)]
    told = list(dict.fromkeys(one for one in said if isinstance(one, Unread)))
    first = named[0] if named else None
    for other in named:
        if first is not None and other.release != first.release:
            why = f"{first.where} names {first.release}, which is taken"
            told.append(unread(other.where, f"release {other.release}", why))
            break
    settings: dict[tuple[object, ...], Setting] = {}
    for one in said:
        if isinstance(one, Setting):
            settings.setdefault((one.reader, one.name, repr(one.value), one.where, one.model), one)
    release = first.release if first else ""
    return Found(tuple(settings.values()), tuple(told), release, first.where if first else None)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files under a folder in order, without following links to folders."""
    count = 0
    try:
        for place, folders, names in os.walk(folder):
            depth = len(Path(place).relative_to(folder).parts)
            folders[:] = sorted(name for name in folders if name not in _PASSED) if depth < _MOST_LEVELS else []
            for name in sorted(names):
                if count >= _MOST_FILES:
                    return
                if what_is(Path(place) / name) is None:
                    count += 1
                    yield Path(place) / name
    except OSError as error:
        raise storage_error(error, "looking into what is to be migrated") from None


def _read(file: Path, name: str, *, alone: bool) -> list[Said]:
    """Read one file as what it is; nothing of a file of another kind, and a refusal where it was the only one."""
    if not alone and not _may_be_read(file):
        return []
    raw = _bytes(file, alone=alone)
    read = None if raw is None else _reader(file, raw, alone=alone)
    if raw is None or read is None:
        return []
    shell = Shell(name, _version(raw, name, read), _loader(file), _manifest(name))
    return list(read(raw, shell))


def _version(raw: bytes, name: str, read: Read) -> str:
    """Return the release that a file names, by reading it once without one."""
    said = read(raw, Shell(name))
    return next((one.release for one in said if isinstance(one, Named)), "")


def _manifest(file: str) -> Callable[[str, int], Iterator[Said]]:
    from trtllm_kit.migrate.manifests import read_manifests

    return lambda text, line: read_manifests(("\n" * (line - 1) + text).encode(), Shell(file))


def _loader(script: Path) -> Callable[[str], str | None]:
    """Return what reads a file that a script reads in: one whose path begins at the script."""

    def load(text: str) -> str | None:
        beside = script.parent / text
        if Path(text).is_absolute():  # a place of the machine that the script is for
            return None
        try:
            raw = read_file(beside, _MOST_BYTES)
        except (OSError, ValueError):  # another file, or a name that no file can have: its variables stay unknown
            return None
        return raw.decode("utf-8", errors="replace")

    return load


def _bytes(file: Path, *, alone: bool) -> bytes | None:
    try:
        return read_file(file, _MOST_BYTES)
    except UnfitFile as error:
        if alone:
            raise NothingToMigrate(
                f"{file} cannot be read", why=error.unfit, hint="give a regular file or a folder"
            ) from None
        return None
    except FileNotFoundError:
        raise NothingToMigrate(f"{file} cannot be read", why="nothing stands there", hint="check the path") from None
    except OSError as error:
        raise storage_error(error, "reading what is to be migrated") from None


def _may_be_read(file: Path) -> bool:
    """Whether a file of a folder is worth opening, by its name and size."""
    known = file.suffix in (".sh", ".bash", ".pbtxt", ".yaml", ".yml", ".slurm", ".sbatch", ".env", "")
    named = file.name in ("config.json", "quant_cfg.json") or _DOCKERFILE.fullmatch(file.name) is not None
    return (known or named) and file.stat().st_size <= _MOST_BYTES


def _reader(file: Path, raw: bytes, *, alone: bool) -> Read | None:
    """Return what reads a file; None for a file of another kind."""
    if file.suffix == ".json":
        return _json
    if file.suffix == ".pbtxt":
        return _model(file)
    if _DOCKERFILE.fullmatch(file.name):
        return _dockerfile
    if file.suffix in (".yaml", ".yml"):
        return _yaml(file, raw, alone=alone)
    script = file.suffix in (".sh", ".bash", ".slurm", ".sbatch", ".env") or raw.startswith(b"#!")
    return _script if script or alone else None


def _json(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.engines import read_config, read_layers

    return (read_layers if shell.file.endswith("quant_cfg.json") else read_config)(raw, shell.file)


def _model(file: Path) -> Read:
    from trtllm_kit.migrate.repositories import read_model

    folder = file.resolve().parent.name
    return lambda raw, shell: read_model(raw, shell.file, folder)


def _dockerfile(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.dockerfile import read_dockerfile

    return read_dockerfile(raw.decode("utf-8", errors="replace"), shell)


def _script(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.scripts import read_shell

    return read_shell(raw.decode("utf-8", errors="replace"), shell)


def _yaml(file: Path, raw: bytes, *, alone: bool) -> Read | None:
    """Return what reads a YAML file: as manifests, or as values of a chart."""
    from trtllm_kit.lint.kinds import is_manifest
    from trtllm_kit.migrate.charts import read_values
    from trtllm_kit.migrate.manifests import read_manifests

    if is_manifest(raw) or (_TEMPLATE.search(raw) and "templates" in file.parts):
        return read_manifests
    return read_values if alone or _VALUES.fullmatch(file.name) else None


def _nothing(path: Path, files: int) -> NothingToMigrate:
    return NothingToMigrate(
        f"{path} holds nothing that could be migrated",
        why=f"none of {files} files is one of: {'; '.join(_LOOKED_FOR)}",
        hint="trtkit migrate engine FOLDER, with the folder of the engine, the scripts or the repository",
    )
