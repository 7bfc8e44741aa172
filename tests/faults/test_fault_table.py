"""Every fault tried on ``convert``, one row each: what protects, what is said, and that the older output stays whole.

Broken weights, indices and configurations have tables of their own in ``tests/checkpoint/test_broken_inputs.py`` and
``tests/cli/test_broken_inputs.py``, sources that change in ``tests/checkpoint/test_source_changes.py``.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.breaking import (
    SHARD,
    Case,
    a_file,
    behind_link,
    closed_output,
    closed_parent,
    config_text,
    cut,
    edited,
    fail,
    failing,
    foreign_folder,
    goes_to,
    holding_artifact,
    huge_config,
    index_names,
    limit_files,
    meanwhile,
    mount_point,
    nested,
    odd_names,
    odd_names_in_c,
    older_kit,
    only,
    other_disk,
    other_kind,
    read_only_disk,
    remove,
    replaced,
    small_disk,
    through_the_hub,
    touch,
    with_pickle_beside,
    with_thesis,
)
from tests.faults.killing import beside, tree
from tests.support.tiny_model import write_tiny_model

PROFILE = """\
base: cpu-rehearsal-smollm2
name: faults
quantization: {weights: bf16, kv_cache: bf16}
limits: {max_seq_len: 512, max_num_tokens: 512}
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model in three shards, and the checkpoint of an earlier training of it."""
    root = tmp_path_factory.mktemp("template")
    (root / "profile.yaml").write_text(PROFILE)
    write_tiny_model(root / "model", seed=1, shards=3)
    assert Case(root, root / "out").convert().code == 0
    shutil.rmtree(root / "model")
    write_tiny_model(root / "model", shards=3)
    assert Case(root, root / "expected").convert().code == 0
    return root


@pytest.fixture
def case(template: Path, tmp_path: Path) -> Iterator[Case]:
    """A copy of the template; what was mounted and closed in it is opened again."""
    root = tmp_path / "root"
    shutil.copytree(template, root, symlinks=True)
    case = Case(root, root / "out")
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(60)
    yield case
    signal.alarm(0)
    for place in case.mounts:
        subprocess.run(["umount", place], check=True)
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _too_long(*_: object) -> None:
    raise TimeoutError("it waited")


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    protection: str
    """What keeps the fault from doing harm."""
    breaking: Callable[[Case], Any]
    code: str
    """Of the error."""
    words: str
    """Said in the error."""


ONE_NAME = "a shard's name is a name beside the index, never a path"
FAULTS: dict[str, Fault] = {
    "index names ..": Fault(ONE_NAME, index_names("../stolen.safetensors"), "CHECKPOINT-002", "lies beside the index"),
    "index names a folder": Fault(ONE_NAME, index_names("below/x.bin"), "CHECKPOINT-002", "lies beside the index"),
    "index names the root": Fault(ONE_NAME, index_names("/etc/passwd"), "CHECKPOINT-002", "lies beside the index"),
    "index names NUL": Fault(ONE_NAME, index_names("a\0b"), "CHECKPOINT-002", "lies beside the index"),
    "index names itself": Fault("a shard's header is checked", index_names("model.safetensors.index.json"),
        "CHECKPOINT-001", "promise a header"),
    "dangling link": Fault("links are followed before they are opened",
        replaced(SHARD, lambda path: path.symlink_to("../gone")), "CHECKPOINT-001", "which is not there"),
    "loop of links": Fault("links are followed before they are opened",
        replaced(SHARD, lambda path: path.symlink_to(path.name)), "CHECKPOINT-001", "leads back to itself"),
    "named pipe": Fault("what is no regular file is not opened", replaced(SHARD, os.mkfifo),
        "CHECKPOINT-001", "it is a named pipe"),
    "endless device": Fault("what is no regular file is not opened",
        replaced("config.json", lambda path: path.symlink_to("/dev/zero")), "MODEL-002", "it is a device"),
    "pickle .bin": Fault("pickles are never read", only("pytorch_model.bin"), "CHECKPOINT-001", "only as pickles"),
    "pickle .pt": Fault("pickles are never read", only("model.pt"), "CHECKPOINT-001", "only as pickles"),
    "pickle .pth": Fault("pickles are never read", only("consolidated.00.pth"), "CHECKPOINT-001", "only as pickles"),
    "huge config": Fault("text is read up to 64 MiB", huge_config, "MODEL-002", "more than 67108864 bytes"),
    "deep config": Fault("JSON has at most 64 levels", config_text(nested(100)), "MODEL-002", "than 64 levels"),
    "bottomless config": Fault("a parser that runs out of stack is an error like others", config_text(nested(99_999)),
        "MODEL-002", "than 64 levels"),
    "key twice": Fault("a JSON object has each key once",
        config_text(lambda text: text.replace("{", '{"vocab_size": 9,', 1)), "MODEL-002", "occurs twice"),
    "NaN in config": Fault("numbers are finite",
        config_text(lambda text: text.replace("10000.0", "NaN")), "MODEL-002", "rope_theta"),
    "input vanishes": Fault("every read opens the file anew", meanwhile(60, remove, SHARD), "ARTIFACT-003",
        "No such file"),
    "input is cut": Fault("every read compares the file's stamp", meanwhile(60, cut, SHARD), "CHECKPOINT-001", "bytes"),
    "input is written": Fault("every read compares the file's stamp", meanwhile(60, touch, SHARD),
        "CHECKPOINT-001", "changed during the run"),
    "tokenizer vanishes": Fault("the source is named again before the end", meanwhile(60, remove, "tokenizer.json"),
        "CHECKPOINT-001", "tokenizer.json changed"),
    "disk too small": Fault("free space is compared before the first byte", small_disk, "ARTIFACT-003", "needed"),
    "disk fills up": Fault("a failed write removes the stage", failing(errno.ENOSPC, 50), "ARTIFACT-003", "No space"),
    "quota ends": Fault("a failed write removes the stage", failing(errno.EDQUOT, 50), "ARTIFACT-003", "quota"),
    "file size limit": Fault("a failed write removes the stage",
        lambda case: setattr(case, "first", limit_files), "ARTIFACT-003", "File too large"),
    "disk breaks": Fault("a failed flush removes the stage", failing(errno.EIO, 55), "ARTIFACT-003", "Input/output"),
    "read-only disk": Fault("the system's own reason is told", read_only_disk, "ARTIFACT-003", "Read-only"),
    "read-only parent": Fault("the system's own reason is told", closed_parent, "ARTIFACT-003", "Permission denied"),
    "read-only output": Fault("rights are asked before the first byte", closed_output, "ARTIFACT-003", "Permission"),
    "output is the source": Fault("source and output lie apart", goes_to("model"), "USAGE-001", "is the source itself"),
    "output in the source": Fault("source and output lie apart", goes_to("model/out"), "USAGE-001", "lies in the"),
    "source in the output": Fault("source and output lie apart", holding_artifact, "USAGE-001", "holds the source"),
    "source in a plain folder": Fault("source and output lie apart", goes_to("."), "USAGE-001", "holds the source"),
    "output is a file": Fault("only an artifact is replaced", a_file, "ARTIFACT-001", "was not made by trtkit"),
    "output of yours": Fault("only an artifact is replaced", foreign_folder, "ARTIFACT-001", "was not made by trtkit"),
    "file of yours within": Fault("only what the manifest names is replaced", with_thesis, "ARTIFACT-001",
        "notes/thesis.tex"),
    "another artifact": Fault("only an artifact of the same kind is replaced", other_kind, "ARTIFACT-001", "engine"),
    "mount point": Fault("what no rename can replace is refused before the first byte", mount_point,
        "ARTIFACT-001", "is a mount point"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_three_lines_and_the_older_output_stays_whole(case: Case, name: str) -> None:
    """The error has the row's code and words; every other byte of the folder, and every name in it, is as before."""
    fault = FAULTS[name]
    fault.breaking(case)
    protected = [path for path in (case.out, case.root / "out", case.root / "mine") if path.is_dir()]
    before = [tree(path) for path in protected if path != case.root]

    ended = case.convert()

    said = ended.said.splitlines()
    assert f"error[KIT-{fault.code}]: " == said[0][: len(f"error[KIT-{fault.code}]: ")], ended.said
    assert said[1].startswith("  because: ")
    assert said[-1].startswith("  try: ")
    assert fault.words in ended.said
    assert ("USAGE" in fault.code) == (ended.code == 2)
    assert ended.code in (2, 3)
    assert before == [tree(path) for path in protected if path != case.root]
    assert [] == [path.name for path in case.root.rglob(".*")]


LEGAL: dict[str, tuple[str, Callable[[Case], None]]] = {
    "folder of links": ("a link that leads to a regular file is that file", through_the_hub),
    "pickle beside": ("safetensors are taken, pickles left alone", with_pickle_beside),
    "odd names": ("no name passes through a shell", odd_names),
    "odd names, LANG=C": ("names are bytes to the file system", odd_names_in_c),
    "another disk": ("the stage stands beside the output, not the source", other_disk),
    "output behind a link": ("a link is followed and kept", behind_link),
    "edited at the same size": ("a file newer than its manifest is compared by its hash", edited),
    "another release": ("what another release made is made again", older_kit),
    "older output": ("the finished folder is swapped in", lambda case: None),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_looks_odd_and_is_legal_gives_the_same_bytes(case: Case, name: str) -> None:
    """The output equals the one made without any of it, byte for byte, and stands alone."""
    LEGAL[name][1](case)
    forked = case.environment is None and case.out.name != "expected"
    expected = tree(case.root / "expected") if forked else None
    ended = case.convert()
    assert ended.code == 0, ended.said
    assert "was made" in ended.said
    assert (expected or tree(fresh(case))) == tree(case.out.resolve())
    assert [] == beside(case.out.resolve())


def fresh(case: Case) -> Path:
    """Return an output made once more, in a place of its own."""
    case.out, out = case.root / "fresh", case.out
    assert case.convert().code == 0
    case.out, made = out, case.out
    return made


def test_an_artifact_that_is_up_to_date_needs_no_right_to_write(case: Case) -> None:
    """Its folder and the folder above may be read-only: there is nothing to write, not even a lock."""
    case.out, case.without_rights = case.root / "made", True
    assert "was made" in case.convert().said
    for folder in (case.out, case.root):
        folder.chmod(0o555)
    ended = case.convert()
    assert ended.code == 0, ended.said
    assert "is up to date" in ended.said


def test_a_copy_of_an_artifact_is_up_to_date_although_its_files_are_newer(case: Case) -> None:
    """``cp -r`` gives every file the time of the copy; the hashes say that they are the same."""
    case.out = case.root / "expected"
    finished = (case.out / "trtkit-manifest.json").stat().st_mtime_ns
    for path in case.out.glob("*.safetensors"):
        os.utime(path, ns=(finished, finished + 1_000_000_000))
    assert "is up to date" in case.convert().said


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0), number=st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT]))
def test_whichever_operation_fails_the_older_or_the_newer_output_stands_whole(
    template: Path, tmp_path_factory: pytest.TempPathFactory, share: float, number: int
) -> None:
    """Fifteen operations that fail, wherever: an error of three lines or none, and a rerun makes good."""
    root = tmp_path_factory.mktemp("failing") / "root"
    shutil.copytree(template, root, symlinks=True)
    case = Case(root, root / "out")
    old, new = tree(root / "out"), tree(root / "expected")
    case.at, case.act = 1 + int(share * operations(template)), functools.partial(fail, number)
    ended = case.convert()
    assert ended.code in (0, 3), ended.said
    assert ended.code == 0 or ended.said.startswith("error[KIT-ARTIFACT-003]"), ended.said
    assert not case.out.exists() or tree(case.out) in (old, new)
    case.at = 0
    assert case.convert().code == 0
    assert new == tree(case.out)
    assert [] == beside(case.out)


@functools.cache
def operations(template: Path) -> int:
    """Return how many operations it takes to replace the older output."""
    root = template.with_name("counted")
    shutil.copytree(template, root, symlinks=True)
    return Case(root, root / "out").convert().operations


def test_the_page_about_faults_has_every_row_of_the_table() -> None:
    """What is promised in words is what is tried here."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "nothing-lost.md").read_text("utf-8")
    rows = [f"| {name} | {fault.protection} | `KIT-{fault.code}` |" for name, fault in FAULTS.items()]
    rows += [f"| {name} | {protection} |" for name, (protection, _) in LEGAL.items()]
    assert [] == [row for row in rows if row not in page]
