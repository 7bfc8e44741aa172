"""Scripts as data: what a real shell makes of them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.targets.support import CLUSTER, OF_ENGINES, RACK, in_pods, subject
from trtllm_kit.serve.targets.shell import (
    Arguments,
    Case,
    Comment,
    Drained,
    Lent,
    Number,
    Output,
    Run,
    Script,
    Set,
    Var,
)
from trtllm_kit.serve.targets.table import TARGETS

HOSTILE = [
    "'",
    '"',
    "$(touch /tmp/x)",
    "`id`",
    "${x}",
    "\\",
    "a\nb",
    "..",
    "*",
    "~",
    "!",
    "#",
    "-e",
    "",
    " ",
    "é",
    "你",
]
TEXT = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)


def ran(script: Script, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script with ``sh``."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"} | variables
    command = ["sh", "-c", script.text(), "the-script", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, check=False, timeout=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_words_arrive_as_they_were(words: list[str], value: str) -> None:
    """Whatever a word or the value of a variable holds, the program gets it, and nothing else runs."""
    printed = Run(("printf", "%s\\0", *words, Var("SOME"), ("a", Var("SOME"), "b")))
    found = ran(Script((Comment(value), Set("SOME", value), printed)))
    expected = [*words, value, f"a{value}b"]
    assert (b"", "".join(f"{one}\0" for one in expected).encode()) == (found.stderr, found.stdout)


def test_expansions_are_what_they_say() -> None:
    """Numbers, the output of commands, defaults and arguments are single words."""
    words = (Number(8000, 10, "N"), Output(("printf", "a  b")), Var("ABSENT", "1.2"), Arguments(), Arguments(all=True))
    found = ran(Script((Run(("printf", "%s|", *words)),)), "x y", "z", N="3")
    assert b"8030|a  b|1.2|x y|x y z|" == found.stdout


def test_a_variable_that_is_not_set_ends_the_script() -> None:
    """A secret that is missing in the shell is found before anything starts."""
    found = ran(Script((Run((":", Var("HUB_TOKEN"))), Run(("echo", "started")))))
    assert (b"", True) == (found.stdout, found.returncode != 0)


def test_a_case_takes_one_of_its_values() -> None:
    """A replica that there is not ends the script with what there is."""
    script = Script((Case(Var("REPLICA"), tuple((str(n), (Run(("echo", f"copy {n}")),)) for n in range(3))),))
    assert b"copy 2\n" == ran(script, REPLICA="2").stdout
    wrong = ran(script, REPLICA="7")
    assert (2, b"not one of 0, 1, 2\n") == (wrong.returncode, wrong.stderr)


@pytest.mark.parametrize("name", ["a b", "", "1a", "x;y"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    """No text can get into a script as the name of a variable, nor as a default."""
    for make in (lambda: Var(name), lambda: Set(name, "v"), lambda: Number(1, 1, name), lambda: Var("A", name + ";")):
        with pytest.raises(ValueError, match=r"name of a variable|default"):
            make()


def test_a_directive_that_is_no_line_is_refused() -> None:
    """Slurm reads directives line by line, so a line break in one would be another directive."""
    with pytest.raises(ValueError, match="directive"):
        Script((), directives=("--job-name=a\n--account=b",)).text()


SERVER = "#!/bin/sh\ntrap 'echo told; sleep 0.5; echo drained; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n"


def test_the_server_is_told_to_end_and_its_launcher_is_not(tmp_path: Path) -> None:
    """A signal to the script reaches the server under a launcher that would kill it, and the script waits for it."""
    (tmp_path / "server.sh").write_text(SERVER)
    launcher = tmp_path / "launcher.sh"
    launcher.write_text(
        f"trap 'echo launcher told; kill -KILL 0' TERM\nsh {tmp_path}/server.sh --http-port=1 & wait $!\n"
    )
    script = Script((Drained(("sh", str(launcher)), "^sh [^ ]*/server.sh --http-port="),))
    with subprocess.Popen(["sh", "-c", script.text()], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "up\n" == process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert "told\ndrained\n" == process.stdout.read()
        assert 0 == process.wait(10)


def test_a_lent_place_waits_for_what_runs_there(tmp_path: Path) -> None:
    """A worker that is told to end stays until the daemon of the leader's ranks has gone."""
    daemon = tmp_path / "lentdaemon"
    shutil.copy("/bin/sleep", daemon)
    lend = ["sh", "-c", Script((Lent("lentdaemon"),)).text()]
    with subprocess.Popen([str(daemon), "5"]) as running, subprocess.Popen(lend, start_new_session=True) as process:
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        running.kill()
        running.wait()
        assert 0 == process.wait(5)


MEANT = "SC2016,SC2089,SC2090,SC2317"
"""Dollar signs and quotes of a profile's text are to stay what they are, and a trap calls its function."""
CASES = [
    ("local", subject({"parallelism.tensor": 1, "parallelism.replicas": 8, "environment": {"A": "it's $(x)"}})),
    ("local", subject({"deploy.secret_environment": {"HF_TOKEN": "hub/token"}})),
    ("mpirun", subject({"parallelism.tensor": 8, "deploy.hosts": [f"n{i}" for i in range(2)]}, CLUSTER)),
    ("mpirun", subject(repository=OF_ENGINES)),
    ("slurm", subject({"parallelism.tensor": 8, "parallelism.replicas": 9}, RACK)),
    ("slurm", subject(repository=OF_ENGINES)),
    ("kubernetes", in_pods({"parallelism.tensor": 8, "parallelism.replicas": 9}, RACK)),
]


@pytest.mark.parametrize(("target", "made"), CASES)
def test_the_scripts_are_sound(target: str, made: object, tmp_path: Path) -> None:
    """``sh`` reads every script, and shellcheck finds nothing to say about it."""
    files = TARGETS[target].files(made)  # type: ignore[arg-type]
    scripts = {name: text for name, text in files.items() if name.endswith((".sh", ".sbatch"))}
    assert scripts
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        assert 0 == subprocess.run(["sh", "-n", str(tmp_path / name)], check=False).returncode
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no shellcheck; apt-get install shellcheck")
    command = [checker, f"--exclude={MEANT}", *map(str, tmp_path.iterdir())]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "" == said.stdout
