"""Exit codes: every row of the table, by running the installed script."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import filelock
import pytest

from tests.health.support import answers, engine_page, stub_server
from tests.support.cli import Ran, config_folder, trtkit, trtkit_path
from tests.support.tiny_model import write_tiny_model

LLAMA_405B, H200 = "llama-3.1-405b", "h200x1-llama3.1-8b-fp8"


def three_lines(ran: Ran) -> bool:
    """Whether stderr is an error of the common form and nothing more."""
    lines = ran.err.splitlines()
    heads = [line.lstrip().split(":")[0].split("[")[0] for line in (lines[0], lines[1], lines[-1])]
    return heads == ["error", "because", "try"] and "Traceback" not in ran.err


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["profiles", "list"], ["plan", "--help"]])
def test_done_is_0(arguments: list[str]) -> None:
    """Help, version and a verb that did its work."""
    assert trtkit(*arguments).code == 0


def test_a_plan_that_does_not_fit_is_1_and_names_the_binding_term(tmp_path: Path) -> None:
    """405B on one H200: the answer is no, with what binds and what would fit."""
    ran = trtkit("plan", config_folder(tmp_path, LLAMA_405B), "--profile", H200, "--json")

    assert ran.code == 1
    assert ran.json["verdict"] == "no"
    assert "weights" in " ".join(finding["message"] + finding["compared"] for finding in ran.json["findings"])


def test_a_profile_with_problems_is_1_for_validate_and_2_for_a_verb_that_needs_it(tmp_path: Path) -> None:
    """Asked whether it is valid, the answer is no; used as an argument it is a usage error."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("schema_version: 1\nname: x\nhardwear: h200x1\n")

    asked, used = trtkit("profiles", "validate", wrong), trtkit("plan", tmp_path, "--profile", wrong)
    assert (asked.code, used.code) == (1, 2)
    assert "hardware" in asked.out
    assert three_lines(used)


def test_a_profile_for_no_release_is_not_valid(tmp_path: Path) -> None:
    """Validate knows the releases; a profile that does not exist at all is a usage error even there."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"base: {H200}\nname: x\ntrtllm_version: banana\n")

    asked = trtkit("profiles", "validate", wrong)
    assert (1, 2) == (asked.code, trtkit("profiles", "validate", "no-such-profile").code)
    assert "banana" in asked.out


def test_warnings_are_0_and_under_strict_1(tmp_path: Path) -> None:
    """An FP8 KV cache under 16-bit weights runs without calibrated scales: worth a warning, not a refusal."""
    model, profile = config_folder(tmp_path, "llama-3.1-8b"), tmp_path / "p.yaml"
    profile.write_text(f"base: {H200}\nname: p\nquantization: {{weights: bf16, kv_cache: fp8}}\n")

    relaxed, strict = trtkit("plan", model, "-p", profile), trtkit("plan", model, "-p", profile, "--strict")
    assert (relaxed.code, strict.code) == (0, 1)
    assert "WARNING PF8" in relaxed.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-verb"],
        ["plan"],
        ["plan", "x", "--profile", H200, "--no-such-option"],
        ["plan", "x", "--profile", "no-such-profile"],
        ["deploy", "x", "--profile", H200, "--out", "y", "--background"],
    ],
)
def test_usage_errors_are_2(arguments: list[str]) -> None:
    """Unknown verb, missing argument, unknown option, unknown profile, options that contradict each other."""
    ran = trtkit(*arguments)

    assert ran.code == 2
    assert three_lines(ran)


def test_what_cannot_be_done_is_3(tmp_path: Path) -> None:
    """A folder without config.json is an environment's fault, not a verdict."""
    ran = trtkit("plan", tmp_path, "--profile", H200)

    assert ran.code == 3
    assert three_lines(ran)


def test_an_error_with_json_is_one_object(tmp_path: Path) -> None:
    """Scripts read the same three lines as fields."""
    ran = trtkit("plan", tmp_path, "--profile", H200, "--json")

    assert ran.code == 3
    assert set(ran.json["error"]) == {"code", "what", "why", "try"}


@pytest.mark.parametrize(
    ("pages", "code", "word"),
    [
        ([engine_page()], 0, "OK"),
        ([engine_page(used=950, free=50, fraction=0.95)], 1, "WARNING"),
        ([engine_page(fraction="NaN", used="NaN")], 3, "UNKNOWN"),
    ],
)
def test_check_health_speaks_nagios(pages: list[str], code: int, word: str) -> None:
    """0 OK, 1 WARNING, 3 UNKNOWN, each with its one line."""
    with stub_server(answers(*pages)) as url:
        ran = trtkit("check-health", "--profile", "cpu-rehearsal-smollm2", "--url", url, "--interval", "0.1")

    assert (code, f"TRTKIT {word}") == (ran.code, ran.out.split(":")[0])


def test_check_health_of_a_dead_server_is_2() -> None:
    """Refused is CRITICAL when nothing says that the server is still starting."""
    with stub_server(answers("")) as url:
        pass
    ran = trtkit("check-health", "--profile", "cpu-rehearsal-smollm2", "--url", url, "--interval", "0.1")

    assert ran.code == 2
    assert ran.out.startswith("TRTKIT CRITICAL")


@pytest.mark.parametrize("arguments", [["--profile", "no-such"], ["--no-such-option"], ["--url", "::nonsense::"]])
def test_check_health_maps_every_failure_of_its_own_to_3(arguments: list[str]) -> None:
    """Usage errors must not read as CRITICAL to a monitoring system."""
    ran = trtkit("check-health", *arguments)

    assert ran.code == 3
    assert ran.out.startswith("TRTKIT UNKNOWN")


def interrupted(command: list[str], url_wait: float, number: signal.Signals) -> tuple[int, str]:
    """Start a command, send it a signal while it is at work, return its exit code and stdout."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(url_wait)
    assert process.poll() is None, "it ended before it could be interrupted"
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    return process.returncode, out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_is_what_shells_expect(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end a verb with 128 plus the signal; nobody mistakes that for an answer."""
    model, out = write_tiny_model(tmp_path / "model"), tmp_path / "out"
    profile = tmp_path / "profile.yaml"
    profile.write_text("base: cpu-rehearsal-smollm2\nname: p\nlimits: {max_seq_len: 512, max_num_tokens: 512}\n")
    command = [trtkit_path(), "convert", str(model), "--profile", str(profile), "--out", str(out)]
    with filelock.FileLock(tmp_path / ".out.lock"):  # another run works on the same output: convert waits for it
        assert (code, "") == interrupted(command, 2.5, number)
    assert not out.exists()
    assert 0 == trtkit(*command[1:]).code


def test_an_interrupted_check_is_unknown() -> None:
    """A watchdog that was ended has not seen the server well."""
    with stub_server(lambda _: time.sleep(5)) as url:
        code, out = interrupted([trtkit_path(), "check-health", "--url", url], 1.5, signal.SIGINT)

    assert code == 3
    assert out.startswith("TRTKIT UNKNOWN")


def test_a_reader_that_goes_away_is_not_an_error() -> None:
    """`trtkit profiles schema | head -1` ends quietly."""
    command = f"{trtkit_path()} profiles schema --json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def shell(command: str) -> list[str]:
    """Run a line of bash and return its stdout, line by line."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize("sink", ["| true", "| (exec <&-; sleep 1)", ">&-"])
def test_a_verdict_keeps_its_code_when_nobody_reads_it(sink: str) -> None:
    """A closed pipe or a closed stdout turns no CRITICAL and no refusal into success."""
    with stub_server(answers("")) as url:
        pass
    check = f"{trtkit_path()} check-health --url {url} --interval 0.1"
    usage = f"{trtkit_path()} plan x --profile no-such-profile --json"

    assert ["2"] == shell(
        f"{check} {sink}; echo ${{PIPESTATUS[0]}}" if "|" in sink else f"{check} {sink} 2>&-; echo $?"
    )
    assert ["2"] == shell(f"{usage} {sink}; echo ${{PIPESTATUS[0]}}" if "|" in sink else f"{usage} {sink}; echo $?")


@pytest.mark.parametrize("arguments", ["profiles list", "check-health --url http://127.0.0.1:9/metrics"])
def test_an_output_that_cannot_be_written_is_3(arguments: str) -> None:
    """A full disk behind stdout is neither success nor, for the watchdog, WARNING."""
    done = subprocess.run(
        ["bash", "-c", f"{trtkit_path()} {arguments} > /dev/full"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 3
    assert "KIT-ARTIFACT-003" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_crash_is_3_without_a_traceback_and_with_one_under_debug(tmp_path: Path) -> None:
    """A fault of ours reads like every other error; --debug shows where."""
    script = tmp_path / "crash.py"
    script.write_text(
        "from trtllm_kit.cli import app, plan\n"
        "def boom(*a, **k): raise RuntimeError('boom')\n"
        "plan.run_plan = boom\n"
        "app.main()\n"
    )
    python = Path(trtkit_path()).parent / "python"
    quiet, loud = (
        subprocess.run([python, script, "plan", "x", "-p", "y", *more], capture_output=True, text=True, check=False)
        for more in ([], ["--debug"])
    )

    assert (quiet.returncode, loud.returncode) == (3, 3)
    assert "KIT-INTERNAL-001" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


@pytest.mark.parametrize("arguments", ["--help", "build --help", "profiles --help"])
def test_help_of_which_only_the_head_is_read_ends_quietly(arguments: str) -> None:
    """`trtkit --help | head -1` is no failure."""
    command = f"{trtkit_path()} {arguments} | (exec <&-; sleep 0.5); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert ("0\n", "") == (done.stdout, done.stderr)


def test_help_shows_no_type_beside_an_option_that_takes_no_value() -> None:
    """A flag is given or not."""
    for verb in ([], ["build"], ["profiles", "copy"]):
        assert "<bool>" not in trtkit(*verb, "--help").out


def test_the_version_is_json_when_asked_for() -> None:
    """Also an answer of one word is one object."""
    from trtllm_kit import __version__

    assert {"version": __version__} == trtkit("--json", "--version").json
    assert f"trtkit {__version__}\n" == trtkit("--version").out


def test_a_full_stderr_changes_no_exit_code() -> None:
    """What was to be told cannot be; what happened is the same."""
    command = [trtkit_path(), "plan", "x", "--profile", "no-such-profile"]
    with Path("/dev/full").open("w") as full:
        assert 2 == subprocess.run(command, stderr=full, check=False).returncode


@pytest.mark.parametrize("verb", ["plan", "convert"])
def test_alerts_that_check_health_could_not_use_stop_the_work_before_it_begins(tmp_path: Path, verb: str) -> None:
    """A misspelt alert would make every later check UNKNOWN; it is a problem of the profile, with its line."""
    model = write_tiny_model(tmp_path / "model")
    profile = tmp_path / "mine.yaml"
    profile.write_text("base: cpu-rehearsal-smollm2\nname: mine\nalerts:\n  queue-dept: {enabled: false}\n")
    out = ["--out", tmp_path / "out"] if verb == "convert" else []
    ran = trtkit(verb, model, "--profile", profile, *out)

    assert 2 == ran.code
    assert f"{profile}:4: alerts.queue-dept: no such rule; did you mean queue-depth?" in ran.err
    assert not (tmp_path / "out").exists()
