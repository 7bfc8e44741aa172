"""Reads what stands under a path (scripts, engines, repositories, manifests) as the settings somebody made."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from trtllm_kit.artifact import MANIFEST, read_manifest
from trtllm_kit.errors import KitError, NothingToMigrate, storage_error
from trtllm_kit.files import UnfitFile, read_file, what_is
from trtllm_kit.migrate.found import Found, Setting, Unread, Where
from trtllm_kit.migrate.reading.named import Named
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.migrate.reading.programs import Begun
from trtllm_kit.migrate.reading.scripts import Said, Shell
from trtllm_kit.shell.dockerfile import NAMES as DOCKERFILES

_MOST_BYTES = 16 << 20
_MOST_FILES = 2_000
_MOST_LEVELS = 8
_WHOLE = "the whole file"
_PASSED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox"})
_VALUES = re.compile(r"(values|compose|docker-compose)[\w.-]*\.ya?ml")
_OTHERS = (".py", ".mk", ".ipynb", ".j2", ".tpl")
_FOR_A_SHELL = re.compile(rb"#![^\n]*\b(ba|da|a|k|z)?sh\b")
_BUILDS = re.compile(rb"\btrtllm-build\b|\blaunch_triton_server\.py\b")
"""Programs whose name in a file of another kind says that settings stand there."""
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
    said: list[Said] = []
    files = list(_files(path, said)) if folder else [path]
    for file in files:
        name = file.relative_to(path).as_posix() if folder else file.name
        said += _read(file, name, alone=not folder)
    if not any(isinstance(one, Setting | Unread) for one in said):
        raise _nothing(path, len(files))
    return _whole(said)


def commands(file: Path) -> Iterator[tuple[Setting, ...]]:
    """Yield the settings of each command in one file by themselves, with what stands between it and the next.

    Raises what ``found`` raises of a file.
    """
    settings: list[Setting] = []
    for one in _read(file, file.name, alone=True):
        if isinstance(one, Begun):
            yield tuple(settings)
            settings = []
        elif isinstance(one, Setting):
            settings.append(one)
    yield tuple(settings)


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


def _files(folder: Path, said: list[Said]) -> Iterator[Path]:
    """Yield the regular files under a folder in order, without following links to folders; tell of what is left out."""

    def left(place: Path, text: str, why: str) -> None:
        said.append(unread(Where(place.relative_to(folder).as_posix()), text, why))

    def closed(error: OSError) -> None:
        if error.filename == str(folder):
            raise storage_error(error, "looking into what is to be migrated") from None
        left(Path(error.filename), "the whole folder", f"it cannot be opened: {error.strerror}")

    count = 0
    written: set[Path] = set()
    for name, folders, names in os.walk(folder, onerror=closed):
        place = Path(name)
        written |= _written_before(place)
        folders[:] = sorted(one for one in folders if one not in _PASSED)
        if folders and len(place.relative_to(folder).parts) >= _MOST_LEVELS:
            left(place, f"its folders {', '.join(folders)}", f"they lie deeper than {_MOST_LEVELS} folders")
            folders.clear()
        for link in (place / one for one in folders if _is_engine_elsewhere(place / one, folder)):
            left(link, f"link to {link.resolve()}", "links to folders are not followed: migrate that engine too")
        for file in sorted({place / one for one in names} - written):
            if not _is_named(file):
                continue
            count += 1
            if count > _MOST_FILES:
                left(file, "this file and all after it", f"more than {_MOST_FILES} files")
                return
            yield file


def _written_before(folder: Path) -> set[Path]:
    """Return the files of an earlier migration that was written here: nothing of it is what is to be migrated."""
    if not (folder / MANIFEST).is_file():
        return set()
    try:
        manifest = read_manifest(folder)
    except KitError:  # no manifest of trtkit
        return set()
    return {folder / one.path for one in manifest.files} if manifest.facts.get("target") == "migration" else set()


def _is_engine_elsewhere(link: Path, folder: Path) -> bool:
    """Whether it is a link that leads out of the folder to an engine or a checkpoint of rank files."""
    if not link.is_symlink() or link.resolve().is_relative_to(folder.resolve()):
        return False
    try:
        return any(_json(read_file(link / "config.json", _MOST_BYTES), Shell("config.json")))
    except OSError:  # no such file, or none that may be read: nothing is known of the folder
        return False


def _is_file(file: Path) -> bool:
    """Whether it is a regular file that may hold settings; one without an ending may be weights, by its size."""
    try:
        return what_is(file) is None and (bool(file.suffix) or file.stat().st_size <= _MOST_BYTES)
    except OSError:  # gone since
        return False


def _read(file: Path, name: str, *, alone: bool) -> list[Said]:
    """Read one file as what it is; nothing of a file of another kind, and a refusal where it was the only one."""
    try:
        raw = _alone(file) if alone else read_file(file, _MOST_BYTES)
    except UnfitFile as error:
        return [] if not file.suffix else [unread(Where(name), _WHOLE, error.unfit)]
    except OSError as error:
        if alone:
            raise storage_error(error, "reading what is to be migrated") from None
        return [unread(Where(name), _WHOLE, f"it cannot be opened: {error.strerror}")]
    read = _reader(file, raw, alone=alone)
    if read is None:
        return []
    shell = Shell(name, _version(raw, name, read), _loader(file), _manifest(name))
    return list(read(raw, shell))


def _version(raw: bytes, name: str, read: Read) -> str:
    """Return the release that a file names, by reading it once without one."""
    said = read(raw, Shell(name))
    return next((one.release for one in said if isinstance(one, Named)), "")


def _manifest(file: str) -> Callable[[str, int], Iterator[Said]]:
    from trtllm_kit.migrate.reading.manifests import read_manifests

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


def _alone(file: Path) -> bytes:
    """Return the only file that was given; raises ``NothingToMigrate`` for one that is none, and ``OSError``."""
    try:
        return read_file(file, _MOST_BYTES)
    except UnfitFile as error:
        why, hint = error.unfit, "give a regular file or a folder"
    except FileNotFoundError:
        why, hint = "nothing stands there", "check the path"
    raise NothingToMigrate(f"{file} cannot be read", why=why, hint=hint)


def _is_named(file: Path) -> bool:
    """Whether a file of a folder is worth opening, by its name and kind."""
    known = file.suffix in (".sh", ".bash", ".pbtxt", ".yaml", ".yml", ".slurm", ".sbatch", ".env", "", *_OTHERS)
    named = file.name in ("config.json", "quant_cfg.json") or DOCKERFILES.fullmatch(file.name) is not None
    return (known or named) and _is_file(file)


def _reader(file: Path, raw: bytes, *, alone: bool) -> Read | None:
    """Return what reads a file; None for a file of another kind."""
    if file.suffix == ".json":
        return _json
    if file.suffix == ".pbtxt":
        return _model(file)
    if DOCKERFILES.fullmatch(file.name):
        return _dockerfile
    if file.suffix in (".yaml", ".yml"):
        return _yaml(file, raw, alone=alone)
    script = file.suffix in (".sh", ".bash", ".slurm", ".sbatch", ".env") or _FOR_A_SHELL.match(raw)
    if script or (alone and file.suffix not in _OTHERS):
        return _script
    return _other if file.suffix in ("", *_OTHERS) else None


def _other(raw: bytes, shell: Shell) -> Iterator[Said]:
    """Tell of a file of a kind that nobody reads, such as a Makefile, where it builds or starts engines."""
    match = _BUILDS.search(raw)
    if match is not None and b"\0" not in raw[: match.start()]:
        line = raw.count(b"\n", 0, match.start()) + 1
        text = raw.split(b"\n")[line - 1].decode("utf-8", errors="replace")
        yield unread(Where(shell.file, line), text, f"files of this kind are not read: {match[0].decode()} is in it")


def _json(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.reading.engines import read_config, read_layers

    return (read_layers if shell.file.endswith("quant_cfg.json") else read_config)(raw, shell.file)


def _model(file: Path) -> Read:
    from trtllm_kit.migrate.reading.repositories import read_model

    folder = file.resolve().parent.name
    return lambda raw, shell: read_model(raw, shell.file, folder)


def _dockerfile(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.reading.dockerfile import read_dockerfile

    return read_dockerfile(raw.decode("utf-8", errors="replace"), shell)


def _script(raw: bytes, shell: Shell) -> Iterator[Said]:
    from trtllm_kit.migrate.reading.scripts import read_shell

    return read_shell(raw.decode("utf-8", errors="replace"), shell)


def _yaml(file: Path, raw: bytes, *, alone: bool) -> Read | None:
    """Return what reads a YAML file: as manifests, or as values of a chart."""
    from trtllm_kit.lint.kinds import is_manifest
    from trtllm_kit.migrate.reading.charts import read_values
    from trtllm_kit.migrate.reading.manifests import read_manifests

    if is_manifest(raw) or (_TEMPLATE.search(raw) and "templates" in file.parts):
        return read_manifests
    return read_values if alone or _VALUES.fullmatch(file.name) else None


def _nothing(path: Path, files: int) -> NothingToMigrate:
    return NothingToMigrate(
        f"{path} holds nothing that could be migrated",
        why=f"none of {files} files is one of: {'; '.join(_LOOKED_FOR)}",
        hint="trtkit migrate engine FOLDER, with the folder of the engine, the scripts or the repository",
    )
