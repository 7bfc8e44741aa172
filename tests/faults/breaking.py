"""The world of a conversion, and everything that is tried on it: what breaks it, and what only looks as if it did."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.test_reader import edit_index
from tests.cli.test_broken_inputs import unprivileged
from tests.faults.killing import Act, Ended, die, run_verb
from tests.support.cli import trtkit

SHARD = "model-00002-of-00003.safetensors"
TENSOR = "model.layers.1.mlp.down_proj.weight"


@dataclass
class Case:
    """A model, a profile, and an older checkpoint in the output's place; a row breaks them."""

    root: Path
    out: Path
    at: int = 0
    act: Act = die
    first: Act | None = None
    without_rights: bool = False
    environment: dict[str, str] | None = None
    """Of a process that starts in it; the others are forked."""
    source: Path | None = None
    """Given on the command line instead of the model's folder."""
    mounts: list[Path] = field(default_factory=list)

    @property
    def model(self) -> Path:
        """The source."""
        return self.root / "model"

    def convert(self) -> Ended:
        """Run the verb with what the row arranged."""
        arguments = ("convert", self.source or self.model, "--profile", self.root / "profile.yaml", "--out", self.out)
        if self.without_rights or self.environment is not None:
            ran = unprivileged(*arguments) if self.without_rights else trtkit(*arguments, env=self.environment)
            return Ended(ran.code, 0, ran.out + ran.err)
        return run_verb(*arguments, root=self.root, at=self.at, act=self.act, first=self.first)

    def mount(self, place: Path, *options: str) -> None:
        """Mount a file system in memory; only root can."""
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(place)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
            pytest.skip("SKIPPED FOR LACK OF PRIVILEGE: only root can mount a file system")
        self.mounts.append(place)


def index_names(name: str) -> Callable[[Case], None]:
    """Let the index give a tensor this file."""

    def breaking(case: Case) -> None:
        target = case.model / name if "\0" not in name else None
        if target is not None and name not in ("", ".", "..") and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(case.model / SHARD, target)
        edit_index(case.model, **{TENSOR: name})

    return breaking


def config_text(change: Callable[[str], str]) -> Callable[[Case], None]:
    """Rewrite config.json."""

    def breaking(case: Case) -> None:
        path = case.model / "config.json"
        path.write_text(change(path.read_text()))

    return breaking


def nested(levels: int) -> Callable[[str], str]:
    """Return what puts a list of lists of lists into a document."""
    return lambda text: text.replace("{", '{"x": ' + "[" * levels + "]" * levels + ",", 1)


def huge_config(case: Case) -> None:
    """A config.json of 4 GB, sparse."""
    os.truncate(case.model / "config.json", 4 << 30)


def replaced(name: str, make: Callable[[Path], Any]) -> Callable[[Case], None]:
    """Put something else in a file's place."""

    def breaking(case: Case) -> None:
        (case.model / name).unlink()
        make(case.model / name)

    return breaking


def only(name: str) -> Callable[[Case], None]:
    """Leave weights in a pickle alone."""

    def breaking(case: Case) -> None:
        for path in case.model.glob("model*"):
            path.unlink()
        (case.model / name).write_bytes(b"\x80\x02cposix\nsystem\n")

    return breaking


def remove(path: str) -> None:
    """Remove a file; what was removed already stays so."""
    Path(path).unlink(missing_ok=True)


def meanwhile(at: int, deed: Callable[..., None], name: str) -> Callable[[Case], None]:
    """Let something befall an input at an operation of the run."""

    def breaking(case: Case) -> None:
        case.at, case.act = at, functools.partial(deed, str(case.model / name))

    return breaking


def cut(path: str) -> None:
    """Cut a file's last kilobyte."""
    os.truncate(path, Path(path).stat().st_size - 1024)


def touch(path: str) -> None:
    """Write the first byte of a file again."""
    with Path(path).open("r+b", buffering=0) as file:
        byte = file.read(1)
        file.seek(0)
        file.write(byte)


def fail(number: int) -> None:
    """Fail as the system call would."""
    raise OSError(number, os.strerror(number), "the output")


def limit_files() -> None:
    """Allow no file above 30 kB, as ulimit -f does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


def failing(number: int, at: int) -> Callable[[Case], None]:
    """Let an operation of the run fail."""

    def breaking(case: Case) -> None:
        case.at, case.act = at, functools.partial(fail, number)

    return breaking


def small_disk(case: Case) -> None:
    """An output on a file system of 256 KiB, which is too small from the start."""
    case.mount(case.root / "disk", "-o", "size=256k")
    case.out = case.root / "disk" / "out"


def mount_point(case: Case) -> None:
    """An output that is a mount point with nothing in it."""
    case.out = case.root / "mounted"
    case.mount(case.out)


def read_only_disk(case: Case) -> None:
    """An output on a file system that is mounted for reading."""
    case.mount(case.root / "disk", "-o", "ro")
    case.out = case.root / "disk" / "out"


def closed_parent(case: Case) -> None:
    """A folder that this user may not write."""
    (case.root / "closed").mkdir(mode=0o555)
    case.out, case.without_rights = case.root / "closed" / "out", True


def closed_output(case: Case) -> None:
    """An older output that this user may not write."""
    case.out.chmod(0o555)
    case.without_rights = True


def goes_to(relative: str) -> Callable[[Case], None]:
    """Choose another output; ``.`` is the folder that holds the source."""
    return lambda case: setattr(case, "out", case.root / relative)


def holding_artifact(case: Case) -> None:
    """An output that was made by the kit, into which the source was moved."""
    case.model.rename(case.out / "model")
    case.root.joinpath("model").symlink_to("out/model")


def a_file(case: Case) -> None:
    """An output that is a file."""
    case.out = case.root / "letter.txt"
    case.out.write_text("dear")


def with_thesis(case: Case) -> None:
    """An older output into which somebody put something of theirs."""
    (case.out / "notes").mkdir()
    (case.out / "notes" / "thesis.tex").write_text("years")


def foreign_folder(case: Case) -> None:
    """An output folder that the kit did not make."""
    case.out = case.root / "mine"
    case.out.mkdir()
    (case.out / "thesis.tex").write_text("years")


def other_kind(case: Case) -> None:
    """An output that holds an artifact of another kind."""
    path = case.out / "trtkit-manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "engine"}))


def through_the_hub(case: Case) -> None:
    """A snapshot of the hub's cache: a folder of links to blobs that lie elsewhere."""
    blobs = case.root / "blobs"
    case.model.rename(blobs)
    case.model.mkdir()
    for path in blobs.iterdir():
        (case.model / path.name).symlink_to(f"../blobs/{path.name}")


def with_pickle_beside(case: Case) -> None:
    """Weights in both forms, as many repositories have them."""
    (case.model / "pytorch_model.bin").write_bytes(b"\x80\x02")


def odd_names(case: Case) -> None:
    """A source and an output whose names hold what a shell, a terminal or an encoding could stumble over."""
    folder = case.root / "a b'c\"d\ne\u00fc\u4e16$(x)"
    folder.mkdir()
    case.source = case.model.rename(folder / "model -x")
    case.out = folder / "out \u00e9\n'x"


def odd_names_in_c(case: Case) -> None:
    """The same where the locale knows ASCII alone, and Python is not let to know better."""
    odd_names(case)
    case.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def other_disk(case: Case) -> None:
    """An output on another file system than the source."""
    case.mount(case.root / "disk", "-o", "size=200m")
    case.out = case.root / "disk" / "out"


def behind_link(case: Case) -> None:
    """An output that is a link to a folder on another level."""
    (case.root / "far" / "away").mkdir(parents=True)
    case.out = case.root / "link"
    case.out.symlink_to("far/away/out")


def edited(case: Case, *, moment_ns: int = 1) -> None:
    """An output that is up to date but for one byte, written after it was finished; its size is the same."""
    case.out = case.root / "expected"
    path = next(case.out.glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    finished = (case.out / "trtkit-manifest.json").stat().st_mtime_ns
    os.utime(path, ns=(finished, finished + moment_ns))


def older_kit(case: Case) -> None:
    """An output of the same plan and source, made by another release of the kit."""
    case.out = case.root / "expected"
    path = case.out / "trtkit-manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kit_version": "0.0.9"}))
