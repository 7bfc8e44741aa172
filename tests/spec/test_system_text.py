"""Texts of a profile that reach the operating system."""

from __future__ import annotations

import os
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from trtllm_kit.errors import ProfileError
from trtllm_kit.spec.load import load_profile, profile_schema
from trtllm_kit.spec.system_text import Environment, Host
from trtllm_kit.upstream.environment import variables

ENVIRONMENT: TypeAdapter[dict[str, str]] = TypeAdapter(Environment)
HOST: TypeAdapter[str] = TypeAdapter(Host)
SCHEMA = jsonschema.Draft202012Validator(profile_schema())
MACHINES_OWN = (
    "PATH", "TRITONSERVER", "BASH_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONPATH",
)  # fmt: skip


def accepts(adapter: TypeAdapter[Any], value: object) -> bool:
    """Whether a type takes a value."""
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def problems(tmp_path: Path, **keys: object) -> list[str]:
    """Load a profile with these keys and return what is wrong with it, without the file and the line."""
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump({"base": "cpu-rehearsal-simulated", "name": "p"} | keys))
    with pytest.raises(ProfileError) as caught:
        load_profile(str(file))
    return [problem.split(": ", 1)[1] for problem in caught.value.problems]


def judged(**keys: object) -> bool:
    """Whether the schema for editors takes a profile with these keys."""
    return bool(SCHEMA.is_valid({"base": "x", "name": "a"} | keys))


@pytest.mark.parametrize("name", ["A", "_", "NCCL_DEBUG", "a1", "x" * 128])
def test_names_any_system_takes(name: str) -> None:
    """Letters, digits and underscores, for loader and schema."""
    assert accepts(ENVIRONMENT, {name: "a\nb=c"})
    assert judged(environment={name: "a\nb=c"})


@pytest.mark.parametrize("name", ["", "A=B", "A\0", "A\nB", "1A", "A B", "A-B", "Ä", "٣A", "x" * 129, *MACHINES_OWN])
def test_names_no_system_takes_or_that_are_the_machines(name: str) -> None:
    """Refused by loader and schema alike."""
    assert not accepts(ENVIRONMENT, {name: "1"})
    assert not judged(environment={name: "1"})


@pytest.mark.parametrize(("value", "taken"), [("x" * 8192, True), ("x" * 8193, False), ("a\0b", False), ("", True)])
def test_values(value: str, taken: bool) -> None:
    """A value is as long as the system takes, and has no NUL."""
    assert taken == accepts(ENVIRONMENT, {"A": value})
    assert taken == judged(environment={"A": value})


@pytest.mark.parametrize(("count", "taken"), [(128, True), (129, False)])
def test_how_many(count: int, taken: bool) -> None:
    """The number of variables is limited, so that all together pass."""
    variables = {f"A{number}": "" for number in range(count)}

    assert taken == accepts(ENVIRONMENT, variables)
    assert taken == judged(environment=variables)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.text(max_size=20), max_size=4))
def test_whatever_is_taken_can_be_launched(variables: dict[str, str]) -> None:
    """A process starts with every environment that the type takes, and sees it unchanged."""
    if not accepts(ENVIRONMENT, variables):
        return
    code = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(os.environb[n.encode()] for n in sys.argv[1:]))"
    seen = subprocess.run(
        [sys.executable, "-I", "-c", code, *variables],
        env=dict(os.environ) | variables,
        capture_output=True,
        check=True,
    )
    assert "\0".join(variables.values()).encode() == seen.stdout


def test_the_most_that_is_taken_can_be_launched() -> None:
    """As many, as long and as wide variables as the limits allow (of ASCII) start a process."""
    variables = {f"{'N' * 125}{number:03}": "x" * 8192 for number in range(128)}

    assert accepts(ENVIRONMENT, variables)
    assert 0 == subprocess.run(["true"], env=dict(os.environ) | variables, check=False).returncode


def test_problems_name_the_variable_and_the_reason(tmp_path: Path) -> None:
    """Each stands under its own key with what is allowed; no line end or control character comes through."""
    given = {"A=B": "1", "LD_PRELOAD": "/x.so", "N\n": "1", "LONG": "x" * 200_000, "NUL": "a\0"}

    assert [
        "environment.A=B: no name of an environment variable; allowed letters, digits and _, no digit first",
        "environment.LD_PRELOAD: not allowed in a profile: it puts foreign code into the server; "
        "set it in the shell that starts the server",
        "environment.LONG: found 200,000 characters; allowed at most 8,192",
        "environment.N\\n: no name of an environment variable; allowed letters, digits and _, no digit first",
        "environment.NUL: found a NUL character, at which the system would cut the text off; leave it out",
    ] == problems(tmp_path, environment=given)


SECRETS = {
    "HF_TOKEN": "hf_x1y2",
    "AWS_SECRET_ACCESS_KEY": "x1y2",
    "ngc_api_key": "x1y2",
    "DB_PASSWORD": "x1y2",
    "MIRROR": "https://user:x1y2@mirror.example.com/x",
    "CREDENTIAL": "x1y2/",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----\nx1y2",
}


def test_secrets_are_refused_by_name_and_never_shown(tmp_path: Path) -> None:
    """Each is a problem of its own key, on its line, that says where a secret belongs; no value comes through."""
    found = problems(tmp_path, environment=SECRETS | {"NCCL_DEBUG": "WARN"})

    assert {f"environment.{name}" for name in SECRETS} == {one.split(": ")[0] for one in found}
    assert all("looks like a secret" in one and "deploy.secret_environment: {" in one for one in found)
    assert not any("x1y2" in one for one in found)


def test_the_schema_knows_secrets_by_their_names() -> None:
    """An editor refuses a literal under such a name, in either case of its letters, and takes a number."""
    assert (False, False, True) == tuple(
        judged(environment={name: value}) for name, value in (("HF_TOKEN", "a"), ("hf_token", "a"), ("HF_TOKEN", "7"))
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRTLLM_MAX_TOKEN", "2048"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN_PATH", "/run/secrets/hub"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("PASSWORD_FILE", "/run/secrets/x"),
        ("MIRROR", "https://mirror.example.com:8443/x@y"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/run/secrets/cloud.json"),
        ("KEYS", "a,b"),
        ("MONKEY", "x"),
    ],
)
def test_what_only_sounds_like_a_secret_is_taken(name: str, value: str) -> None:
    """Numbers, empty values, paths of secrets and other words are a profile's to set, for loader and schema."""
    assert accepts(ENVIRONMENT, {name: value})
    assert judged(environment={name: value})


def test_no_variable_of_upstream_but_a_key_looks_like_a_secret() -> None:
    """Every variable of the catalogue may be set to a word, but the key between a server and its workers."""
    names = {one.name for one in variables()} - set(MACHINES_OWN)

    assert {"TLLM_SPAWN_PROXY_PROCESS_IPC_HMAC_KEY"} == {n for n in names if not accepts(ENVIRONMENT, {n: "word"})}


def test_a_wrong_value_is_shown_short(tmp_path: Path) -> None:
    """A problem stays readable however long the text is that has no meaning."""
    (problem,) = problems(tmp_path, runtime="x" * 100_000)

    assert 400 > len(problem)
    assert "xxx... (text); allowed one of" in problem


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "0.0.0.0",
        "::",
        "::1",
        "fd00::2",
        "::ffff:10.0.0.1",
        "localhost",
        "node-7.rack_1.example",
        "7up",
        "a",
    ],
)
def test_hosts_that_can_be_bound(host: str) -> None:
    """Addresses of both families and host names, for loader and schema."""
    assert accepts(HOST, host)
    assert judged(serve={"host": host})


@pytest.mark.parametrize(
    "host",
    ["", " ", "a b", "-x", "a\0b", "a\nb", "'a'", '"a"', "x" * 254, "fe80::1%eth0", "[::1]", "http://a", "ä", "a;b"],
)
def test_hosts_that_are_none(host: str) -> None:
    """Refused by loader and schema alike."""
    assert not accepts(HOST, host)
    assert not judged(serve={"host": host})


@pytest.mark.parametrize(
    "host", ["256.0.0.1", "10.1", "1", "0x.1", "127.0.0.1:8000", ":", "a..b", ".a", "a-", "x" * 64]
)
def test_broken_addresses_and_names(host: str) -> None:
    """What the schema's pattern cannot tell the loader does: a number at the end is an address, whole or none."""
    assert not accepts(HOST, host)


@given(st.text(string.printable, max_size=12) | st.from_regex(r"[0-9a-f:.]{1,20}"))
def test_the_schema_takes_every_host_that_the_loader_takes(host: str) -> None:
    """An editor marks nothing as wrong that would load."""
    assert judged(serve={"host": host}) or not accepts(HOST, host)


def test_a_host_without_meaning_says_what_has_one(tmp_path: Path) -> None:
    """The problem shows what was found and what is allowed."""
    assert ["serve.host: found '-x y'; allowed an IP address such as 127.0.0.1 or ::1, or a host name"] == problems(
        tmp_path, serve={"host": "-x y"}
    )


@pytest.mark.parametrize("key", ["calibration.text", "serve.checkpoint_path"])
def test_paths_hold_no_nul(tmp_path: Path, key: str) -> None:
    """A path that no system call takes is a problem of the profile, for loader and schema."""
    section, name = key.split(".")
    value = {section: {name: "a\0b"}}

    (problem,) = problems(tmp_path, **value)

    assert problem.startswith(f"{key}: found a NUL character")
    assert not judged(**value)
