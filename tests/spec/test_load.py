"""Models and profiles from files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.support.tiny_model import FAMILIES, write_tiny_model
from tests.test_files import UNFIT
from trtllm_kit.errors import (
    KitError,
    ModelConfigError,
    ModelNotFound,
    ProfileError,
    ProfileNotFound,
    StorageError,
    UnknownArchitecture,
)
from trtllm_kit.spec.load import (
    load_hardware,
    load_model,
    load_profile,
    profile_file,
    profile_schema,
    shipped_profiles,
)

from .configs import config

PROFILES = (
    "b200x8-agent-1m",
    "b200x8-llama4-maverick-latency",
    "cpu-rehearsal-simulated",
    "cpu-rehearsal-smollm2",
    "gb200-nvl72-llama3.1-405b-nvfp4",
    "gh200-nvl32-llama3.1-405b-fp8",
    "gh200-nvl32-llama3.1-70b-fp8",
    "h100x2-llama2-70b-fp8",
    "h200x1-7b-200ms",
    "h200x1-llama3.1-8b-fp8",
    "h200x4-online",
    "h200x8-offline",
    "l40s-cluster",
)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user that permissions bind, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def model(folder: Path, text: str | bytes) -> Path:
    """Write a ``config.json`` of that text, and return its folder."""
    (folder / "config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


# --- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_folder_is_read(tmp_path: Path, family: str) -> None:
    """The tiny model of each family loads as that family."""
    assert family == load_model(write_tiny_model(tmp_path / "model", family)).family


def test_modelopt_exports_are_marked(tmp_path: Path) -> None:
    """``hf_quant_config.json`` marks quantised weights where ``config.json`` is silent; what it says itself wins."""
    folder = model(tmp_path, json.dumps(config("llama")))
    assert load_model(folder).quantized_as is None

    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    assert "modelopt" == load_model(folder).quantized_as

    model(tmp_path, json.dumps(config("llama", quantization_config={"quant_method": "awq"})))
    assert "awq" == load_model(folder).quantized_as


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("", "is not a JSON object", "Expecting value: line 1 column 1"),
        ('{"a": 1', "is not a JSON object", "line 1 column 8"),
        ("[1]", "is not a JSON object", "it holds a list"),
        (b"\xff\xfe\xff", "is not a JSON object", "codec can't decode"),
        ("[" * 100_000, "is not a JSON object", "nested deeper than 64 levels"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "is a git-LFS pointer", "63 bytes"),
        ("{}", "architectures is missing", "the name of one architecture"),
        ('{"hidden_size": 1, "hidden_size": 2}', "is not a JSON object", 'the key "hidden_size" occurs twice'),
        (r'{"_name_or_path": "\ud800"}', "is not a JSON object", "half of a surrogate pair"),
        ('{"a": ' * 500 + "1" + "}" * 500, "is not a JSON object", "nested deeper"),
    ],
)
def test_a_broken_config_is_three_lines(tmp_path: Path, text: str | bytes, what: str, why: str) -> None:
    """Whatever ``config.json`` holds, the error names the file and says what is wrong with it."""
    with pytest.raises(ModelConfigError) as caught:
        load_model(model(tmp_path, text))

    assert 3 == len(str(caught.value).splitlines())
    assert str(tmp_path / "config.json") in caught.value.what
    assert what in caught.value.what
    assert why in caught.value.why


def test_a_config_of_a_million_keys_is_refused_at_once(tmp_path: Path) -> None:
    """No model has them, and judging each of them would take a minute."""
    many = model(tmp_path, json.dumps({f"attention_{number}": number for number in range(1_000_000)}))
    began = time.monotonic()
    with pytest.raises(ModelConfigError, match="more than 200000 keys and values"):
        load_model(many)
    assert time.monotonic() - began < 15


def test_a_config_of_too_many_problems_lists_the_first(tmp_path: Path) -> None:
    """A hundred lines tell that it is another kind of file; each further one would be compared with all."""
    document = config("llama") | {f"attention_{number}": number for number in range(90_000)}
    began = time.monotonic()
    with pytest.raises(ModelConfigError, match="has 100 problems or more") as caught:
        load_model(model(tmp_path, json.dumps(document)))
    assert 100 == len(caught.value.problems)
    assert time.monotonic() - began < 10


def test_a_config_too_large_to_be_one_is_not_read(tmp_path: Path) -> None:
    """A weight file under its name, say; it may not even fit the memory."""
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelConfigError, match="it holds more than 67108864 bytes"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", UNFIT)
def test_what_is_no_file_is_neither_config_nor_profile_nor_model(tmp_path: Path, kind: str) -> None:
    """It is named as what it is, at once."""
    make, words = UNFIT[kind]
    thing = tmp_path / "config.json"
    make(thing)
    with pytest.raises(ModelConfigError, match=r"config\.json cannot be read") as caught:
        load_model(tmp_path)
    assert words in caught.value.why
    with pytest.raises(ProfileNotFound) as wrong:
        load_profile(str(thing))
    assert words.removeprefix("it is ").removesuffix(", not a file") in wrong.value.why
    if kind != "folder":
        with pytest.raises(ModelNotFound) as absent:
            load_model(thing)
        assert words.removeprefix("it is ").removesuffix(", not a file") in absent.value.why


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    """An absent folder, a file, and a folder without ``config.json`` are told apart."""
    (tmp_path / "file").touch()

    with pytest.raises(ModelNotFound, match="no folder of that name"):
        load_model(tmp_path / "none")
    with pytest.raises(ModelNotFound, match="that is a file"):
        load_model(tmp_path / "file")
    with pytest.raises(ModelConfigError, match=r"holds no config\.json"):
        load_model(tmp_path)


def test_an_unknown_architecture_names_the_file(tmp_path: Path) -> None:
    """The file's path is part of the message."""
    with pytest.raises(UnknownArchitecture, match=f"{tmp_path}/config.json describes a Gemma4ForCausalLM"):
        load_model(model(tmp_path, json.dumps(config("llama", architectures=["Gemma4ForCausalLM"]))))


@pytest.mark.parametrize("closed", ["folder", "file"])
def test_what_may_not_be_read_is_a_storage_error(closed: str) -> None:
    """A folder or a file without permission gives the system's own words."""
    root = Path("/tmp") / f"trtkit-closed-{os.getpid()}-{closed}"
    folder = root / "model"
    folder.mkdir(parents=True)
    try:
        model(folder, json.dumps(config("llama")))
        (folder if closed == "folder" else folder / "config.json").chmod(0)
        with unprivileged(), pytest.raises(StorageError, match="Permission denied"):
            load_model(folder)
    finally:
        folder.chmod(stat.S_IRWXU)
        shutil.rmtree(root)


# --- profiles ------------------------------------------------------------------------------------------------------


def test_the_shipped_profiles() -> None:
    """The folder is the list; nothing is registered by hand."""
    assert PROFILES == shipped_profiles()


@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_loads_under_its_own_name(name: str) -> None:
    """A profile's name is its file's, summary and model class are one line each, its release is a quoted 1.2.1."""
    loaded = load_profile(name)

    assert name == loaded.profile.name == profile_file(name).stem
    assert 0 < len(loaded.profile.summary) < 80
    assert 0 < len(loaded.profile.model_class) < 100
    assert ("1.2.1", "nvfp4" if name.endswith("nvfp4") else "fp8", "fp8") == (
        loaded.profile.trtllm_version,
        loaded.profile.quantization.weights,
        loaded.profile.quantization.kv_cache,
    )


@pytest.mark.parametrize("name", PROFILES)
def test_the_head_of_a_shipped_profile_says_what_it_is_for(name: str) -> None:
    """Hardware, model class, how to run, one override and limits stand in the head comment."""
    head = profile_file(name).read_text().split("\n\n")

    assert all(f"# {word}" in "".join(head[:2]) for word in ("Hardware", "Model class", "Run", "Override", "Limits"))


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_pass_the_schema_that_editors_get(name: str) -> None:
    """The exported schema accepts what the loader accepts."""
    document = yaml.safe_load(profile_file(name).read_text())

    jsonschema.Draft202012Validator(profile_schema()).validate(document)


@pytest.mark.parametrize(
    ("name", "hardware", "tensor", "replicas"),
    [
        ("b200x8-agent-1m", "dgx-b200", 8, 1),
        ("b200x8-llama4-maverick-latency", "dgx-b200", 8, 1),
        ("cpu-rehearsal-smollm2", "cpu-rehearsal", 1, 1),
        ("gb200-nvl72-llama3.1-405b-nvfp4", "gb200-nvl72", 8, 9),
        ("gh200-nvl32-llama3.1-405b-fp8", "gh200-nvl32", 32, 1),
        ("gh200-nvl32-llama3.1-70b-fp8", "gh200-nvl32", 32, 1),
        ("h200x1-7b-200ms", "h200x1", 1, 1),
        ("h200x1-llama3.1-8b-fp8", "h200x1", 1, 1),
        ("h200x4-online", "h200x4-1000w", 4, 1),
        ("h200x8-offline", "h200x8-700w", 1, 8),
        ("l40s-cluster", "l40s-cluster", 1, 16),
    ],
)
def test_shipped_profiles_leave_no_gpu_idle(name: str, hardware: str, tensor: int, replicas: int) -> None:
    """Ranks times replicas are the machine's GPUs."""
    loaded = load_profile(name).profile

    assert (hardware, tensor, replicas) == (loaded.hardware, loaded.parallelism.tensor, loaded.parallelism.replicas)
    assert load_hardware(hardware).gpus == tensor * replicas


def test_the_quickstart_profile() -> None:
    """The figures the quickstart rests on."""
    profile = load_profile("cpu-rehearsal-smollm2").profile

    assert ("reference", 1024, 4, 32) == (
        profile.runtime,
        profile.limits.max_seq_len,
        profile.limits.max_batch_size,
        profile.kv_cache.tokens_per_block,
    )
    assert (120.0, 16, 256) == (
        profile.serve.start_grace,
        profile.calibration.samples,
        profile.calibration.tokens_per_sample,
    )


def test_inheritance_between_shipped_profiles() -> None:
    """The simulated profile changes the runtime and keeps the rest; origins say which file said what."""
    loaded, base = load_profile("cpu-rehearsal-simulated"), load_profile("cpu-rehearsal-smollm2")

    assert "simulated" == loaded.profile.runtime
    assert base.profile.quantization == loaded.profile.quantization
    assert "cpu-rehearsal-simulated.yaml:14" == loaded.origins["runtime"]
    assert "cpu-rehearsal-smollm2.yaml:21" == loaded.origins["quantization.weights"]


def test_sources_of_keys() -> None:
    """A key of the document is the profile's; one it leaves out is a default."""
    loaded = load_profile("cpu-rehearsal-smollm2")

    assert ("profile", "default") == (loaded.source("limits.max_seq_len"), loaded.source("limits.max_beam_width"))
    assert "profile" == loaded.source("limits")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """A file is read by its path, and can start from a shipped profile."""
    file = tmp_path / "mine.yaml"
    file.write_text("base: cpu-rehearsal-smollm2\nname: mine\ngpu_memory: 24 GiB\nserve: {start_grace: 250ms}\n")

    loaded = load_profile(str(file))

    assert ("mine", 24 * 2**30, 0.25) == (
        loaded.profile.name,
        loaded.profile.gpu_memory,
        loaded.profile.serve.start_grace,
    )
    assert f"{file}:3" == loaded.origins["gpu_memory"]


def test_the_calibration_text_of_a_profile_is_known_by_its_hash(tmp_path: Path) -> None:
    """It is the hash of what convert reads; verbs that need no calibration load the profile without the file."""
    text, file = tmp_path / "text.txt", tmp_path / "mine.yaml"
    document = "base: cpu-rehearsal-smollm2\nname: mine\ncalibration: {text: %s}\n"
    file.write_text(document % text)
    assert load_profile(str(file)).calibration_sha256 is None
    text.write_bytes(b"one\r\ntwo\n")
    assert hashlib.sha256(b"one\ntwo\n").hexdigest() == load_profile(str(file)).calibration_sha256
    text.write_bytes(b"\xff")
    assert load_profile(str(file)).calibration_sha256 is None
    assert load_profile("cpu-rehearsal-smollm2").calibration_sha256 is None


def test_a_file_without_suffix_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no shipped profile is tried as a file."""
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("base: cpu-rehearsal-smollm2\nname: mine\n")

    assert "mine" == load_profile("mine").profile.name


def test_a_pipe_is_a_file(tmp_path: Path) -> None:
    """A profile may come from a process substitution or /dev/stdin."""
    code = "from trtllm_kit.spec.load import load_profile; print(load_profile('/dev/stdin').profile.name)"
    text = "base: cpu-rehearsal-smollm2\nname: piped\n"

    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True)

    assert "piped\n" == done.stdout


def test_five_mistakes_five_lines(tmp_path: Path) -> None:
    """All mistakes of a file and of its base come at once, each with its own file and line, in order."""
    (tmp_path / "base.yaml").write_text(
        'schema_version: 1\nname: base\nhardware: h200x1\ntrtllm_version: "1.2.1"\nlimits:\n  max_seq_len: 0\n'
    )
    file = tmp_path / "p.yaml"
    file.write_text(
        "base: base.yaml\n"
        "name: p\n"
        "runtme: reference\n"
        "quantization:\n"
        "  weights: fp9\n"
        "  weights: fp8\n"
        "parallelism: {tensor: all}\n"
    )

    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))

    expected = [(file, 3), (file, 5), (file, 6), (file, 7), (tmp_path / "base.yaml", 6)]
    assert [f"{name}:{line}" for name, line in expected] == [
        ":".join(problem.split(":")[:2]) for problem in caught.value.problems
    ]
    assert f"profile {file} has 5 problems" == caught.value.what
    assert 2 == caught.value.exit_code


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "1: the document is empty"),
        (b"- a\n", "1: the document must be a mapping"),
        (b"name: a\n\tb: c\n", "2: indented by a tab"),
        (b"name: \xe9\n", "1: byte 0xe9 is not UTF-8"),
        (b"base: p.yaml\nname: p\n", "1: base: the bases go in a circle"),
        (b"base: nope\nname: p\n", "1: base: found nope"),
        (b"base: cpu-rehearsal-smollm2\n", "1: name: missing"),
    ],
)
def test_documents_that_are_no_profile(tmp_path: Path, text: bytes, problem: str) -> None:
    """A document that cannot be one has a single problem, not a list of missing keys."""
    file = tmp_path / "p.yaml"
    file.write_bytes(text)

    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))

    assert 1 == len(caught.value.problems)
    assert caught.value.problems[0].startswith(f"{file}:{problem}")


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("h200x1", "there is no such file", "did you mean h200x1-7b-200ms?"),
        ("cpu-rehersal-smollm2", "there is no such file", "did you mean cpu-rehearsal-smollm2?"),
        ("./none.yaml", "there is no such file", "`trtkit profiles list`"),
        ("/", "that is a folder", "`trtkit profiles list`"),
    ],
)
def test_a_profile_that_is_not_there(name: str, why: str, hint: str) -> None:
    """The error says what was looked for, lists the shipped ones and suggests the nearest."""
    with pytest.raises(ProfileNotFound) as caught:
        load_profile(name)

    assert f"no profile {name}" == caught.value.what
    assert why in caught.value.why
    assert "cpu-rehearsal-smollm2" in caught.value.why
    assert hint in caught.value.hint


def test_a_profile_that_may_not_be_read() -> None:
    """A file without permission is a storage error."""
    file = Path("/tmp") / f"trtkit-closed-{os.getpid()}.yaml"
    file.write_text("name: x\n")
    file.chmod(0)
    try:
        with unprivileged(), pytest.raises(StorageError, match="Permission denied"):
            load_profile(str(file))
    finally:
        file.unlink()


# --- the schema for editors ----------------------------------------------------------------------------------------


def test_every_key_of_the_schema_is_described() -> None:
    """An editor can show what each key means."""
    schema = profile_schema()
    sections = schema["$defs"]
    described = [key for key, one in sections.items() if one["description"]]

    assert len(sections) == len(described)
    assert [] == [
        (one["title"], key)
        for one in (schema, *sections.values())
        for key, value in one["properties"].items()
        if "description" not in value and "$ref" not in value
    ]


@pytest.mark.parametrize(
    ("document", "valid"),
    [
        ({"base": "x", "name": "a"}, True),
        ({"schema_version": 1, "name": "a", "hardware": "h200x1", "trtllm_version": "1.2.1"}, True),
        ({"schema_version": 1, "name": "a", "hardware": "h200x1"}, False),
        ({"base": "x"}, False),
        ({"base": "x", "name": "a", "hardware": "h9"}, False),
        ({"base": "x", "name": "a", "trtllm_version": 1.2}, False),
        ({"base": "x", "name": "a", "serve": {"start_grace": "2 min"}}, True),
        ({"base": "x", "name": "a", "limits": {"max_batch": 2}}, False),
    ],
)
def test_the_schema_judges_as_the_loader(document: dict[str, object], valid: bool) -> None:
    """``base`` is allowed and takes the place of inherited keys; typos and wrong types are refused."""
    validator = jsonschema.Draft202012Validator(profile_schema())

    assert valid == validator.is_valid(document)


def test_errors_are_kit_errors() -> None:
    """Nothing but an error of the kit comes out for a name that cannot be."""
    with pytest.raises(KitError):
        load_profile("x" * 300)
    with pytest.raises(KitError):
        load_profile("~nobody-of-that-name/p.yaml")


def test_a_base_that_no_file_system_takes_is_a_kit_error(tmp_path: Path) -> None:
    """Its name is too long to ask for."""
    (tmp_path / "p.yaml").write_text(f"base: {'x' * 5000}.yaml\nname: p\n")
    with pytest.raises(StorageError):
        load_profile(str(tmp_path / "p.yaml"))
