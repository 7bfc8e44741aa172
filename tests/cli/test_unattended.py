"""The verbs that make things, run as cron runs them: silent, one line, or three lines to mail."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest

from tests.support.cli import Ran, trtkit
from tests.support.cron import job, under_cron
from tests.support.road import alive, profile_text
from tests.support.tiny_model import write_tiny_model

LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale in which Python can neither read nor print anything but ASCII."""
HOLD = """
import sys, time
from pathlib import Path
from trtllm_kit.staging import locked
with locked(Path(sys.argv[1]), 1):
    print("held", flush=True)
    time.sleep(60)
"""
"""A run that works on an output for a minute."""


@dataclass(frozen=True)
class Place:
    """A folder for one road; its name is not ASCII."""

    base: Path

    @property
    def profile(self) -> Path:
        """The profile of the road."""
        return self.base / "profile.yaml"

    def run(self, verb: str, *more: str | Path, **options: dict[str, str]) -> Ran:
        """Run one verb of the road under cron."""
        return under_cron(*self.words(verb), *more, **options)  # type: ignore[arg-type]

    def words(self, verb: str) -> list[str]:
        """Return the command line of one verb of the road."""
        source, target = {
            "convert": ("model", "checkpoint"), "build": ("checkpoint", "engine"), "deploy": ("engine", "repository"),
        }[verb]  # fmt: skip
        return [verb, str(self.base / source), "-p", str(self.profile), "--out", str(self.base / target)]

    def change(self) -> None:
        """Ask for another engine than before."""
        text = self.profile.read_text()
        now = re.search(r"max_seq_len: (\d+)", text)
        assert now is not None
        self.profile.write_text(text.replace(now[0], f"max_seq_len: {int(now[1]) - 32}"))

    def record(self) -> dict[str, object]:
        """Read the record of the running server."""
        found: dict[str, object] = json.loads((self.base / "repository.run.json").read_text())
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A tiny model and its profile, nothing made yet; a server left running is stopped."""
    base = tmp_path / "größe"
    write_tiny_model(base / "model")
    made = Place(base)
    made.profile.write_text(
        profile_text("tiny", "cpu-rehearsal-simulated") + "quantization: {weights: bf16, kv_cache: bf16}\n"
    )
    yield made
    if (base / "repository.run.json").exists():
        trtkit("stop", base / "repository")


def silent(ran: Ran) -> bool:
    """Whether cron would have nothing to mail."""
    return (ran.code, ran.out, ran.err) == (0, "", "")


def log_lines(file: Path) -> list[tuple[str, str, str]]:
    """Read a log: run, level and text of each line; every line must have a time."""
    found = [
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ([0-9a-f]{8}) ([a-z ]{8}) (.*)", line)
        for line in file.read_text().splitlines()
    ]
    assert all(found)
    return [(line[1], line[2].rstrip(), line[3]) for line in found if line]


@pytest.mark.parametrize("verb", ["convert", "build", "deploy"])
def test_a_change_is_one_line_and_no_change_is_silence(place: Place, verb: str) -> None:
    """What, where, size, digest and time the first time; nothing on stdout and stderr the second."""
    for before in {"convert": [], "build": ["convert"], "deploy": ["convert", "build"]}[verb]:
        assert 0 == place.run(before, "--unattended").code
    made, again = place.run(verb, "--unattended"), place.run(verb, "--unattended")

    out = re.escape(place.words(verb)[-1])
    assert (0, "") == (made.code, made.err)
    assert re.fullmatch(
        rf"{out}: the \w+ was made, \d+ files, [\d.]+ KiB, manifest [0-9a-f]{{12}}, [\d.]+ m?s\n", made.out
    )
    assert silent(again)


def test_what_is_made_under_a_tight_umask_is_for_its_owner_alone(place: Place) -> None:
    """Umask 077 is kept by every file and folder of the artifact, and by the log."""
    log = place.base / "logs" / "convert.log"
    assert 0 == place.run("convert", "--unattended", "--log-file", log).code

    paths = [log, log.parent, place.base / "checkpoint", *(place.base / "checkpoint").rglob("*")]
    assert {0} == {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths}


def test_with_json_the_one_line_is_the_object(place: Place) -> None:
    """The document stands on one line with size, time and digest; with nothing changed there is none."""
    made, again = place.run("convert", "--unattended", "--json"), place.run("convert", "--unattended", "--json")

    assert 1 == made.out.count("\n")
    assert {"out", "up_to_date", "manifest", "digest", "bytes", "seconds"} == set(made.json)
    assert str(place.base / "checkpoint") == made.json["out"]
    assert silent(again)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--lock-wait", "soon"], 2), (["--profile", "no-such-profile"], 2), (["--dry-run"], 2)],
)
def test_a_failure_is_three_lines_to_mail(place: Place, arguments: list[str], code: int) -> None:
    """Stderr has the error and nothing else, stdout nothing, and the exit code says of which sort it is."""
    ran = place.run("convert", "--unattended", *arguments)

    assert (code, "") == (ran.code, ran.out)
    assert ["error[", "  because: ", "  try: "] == [
        line[: len(head)] for line, head in zip(ran.err.splitlines(), ("error[", "  because: ", "  try: "), strict=True)
    ]


def test_drift_is_1_with_json_on_one_line(place: Place) -> None:
    """Building from a checkpoint of other number formats is an answer, no, and not a fault."""
    assert 0 == place.run("convert", "--unattended").code
    place.profile.write_text(place.profile.read_text().replace("bf16, kv_cache: bf16", "fp8, kv_cache: fp8"))
    ran = place.run("build", "--unattended", "--json")

    assert (1, "KIT-PLAN-002", 1) == (ran.code, ran.json["error"]["code"], ran.out.count("\n"))


def test_every_verb_speaks_in_a_locale_without_letters(place: Place) -> None:
    """Where only ASCII can be printed, other letters of a path are escapes, JSON stays JSON, and nothing fails."""
    text = place.run("convert", environment=LATIN)
    document = place.run("convert", "--json", environment=LATIN)
    plan = under_cron("plan", place.base / "model", "-p", place.profile, "--verbose", environment=LATIN)

    assert (0, 0, 0) == (text.code, document.code, plan.code)
    assert (True, True) == (text.out.isascii(), document.out.isascii())
    assert document.json["up_to_date"]


def test_two_at_once_make_it_once(place: Place) -> None:
    """The second run waits for the first, finds its work done and says nothing."""
    command = job(*place.words("convert"), "--unattended", "--lock-wait", "60s")
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [run.communicate(timeout=120) for run in runs]

    assert [0, 0, 0] == [run.returncode for run in runs]
    assert ["", "", ""] == [error for _, error in said]
    assert 1 == sum(out.count("\n") for out, _ in said)


def test_a_lock_that_is_not_free_in_time_is_3_and_says_who_holds_it(place: Place) -> None:
    """The process and since when; --lock-wait says how long it was waited for."""
    with subprocess.Popen([sys.executable, "-c", HOLD, place.base / "checkpoint"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        began = time.monotonic()
        ran = place.run("convert", "--unattended", "--lock-wait", "0.5s")
        waited = time.monotonic() - began
        holder.kill()

    assert (3, "") == (ran.code, ran.out)
    assert 0.5 <= waited < 5
    assert "KIT-ARTIFACT-002" in ran.err
    assert re.search(rf"process {holder.pid} \(since \d{{4}}-[\dT:-]+Z\) holds its lock .* after 0\.5 s", ran.err)


def test_a_lock_of_another_program_is_told_without_a_process(place: Place) -> None:
    """A lock file that does not say who holds it does not make the message fail."""
    with filelock.FileLock(place.base / ".checkpoint.lock"):
        ran = place.run("convert", "--unattended", "--lock-wait", "0")

    assert 3 == ran.code
    assert "a process that has not told its number holds its lock" in ran.err


def test_a_lock_that_a_killed_run_left_is_free(place: Place) -> None:
    """Its file and the process in it are of the past; the next run goes on at once and leaves none."""
    (place.base / ".checkpoint.lock").write_text('{"pid": 1, "since": "2020-01-01T00:00:00Z"}')

    assert 0 == place.run("convert", "--unattended", "--lock-wait", "0").code
    assert not (place.base / ".checkpoint.lock").exists()
    assert "pid" not in (place.base / "checkpoint" / "trtkit-manifest.json").read_text()


def test_a_log_holds_what_a_run_said_under_its_id(place: Place) -> None:
    """Command, result and end of each run, the error's three lines, and the folder is made."""
    log = place.base / "deep" / "er" / "trtkit.log"
    for extra in ([], [], ["--profile", "no-such-profile"]):
        place.run("convert", "--unattended", "--log-file", log, *extra)
    lines = log_lines(log)
    runs = list(dict.fromkeys(run for run, _, _ in lines))
    levels = [[level for run, level, _ in lines if run == one] for one in runs]

    assert [["info", "result", "info"], ["info", "info", "info"], ["info", *["error"] * 3, "info"]] == levels
    assert "ended with exit code 2" in lines[-1][2]
    assert runs[0] == json.loads((place.base / "checkpoint.log.jsonl").read_text())["run"]


def test_a_log_beside_a_run_that_is_attended_holds_the_same_and_takes_nothing_away(place: Place) -> None:
    """Without --unattended the result still goes to stdout."""
    log = place.base / "trtkit.log"
    ran = place.run("convert", "--log-file", log)

    assert ran.out.splitlines() == [text for _, level, text in log_lines(log) if level == "result"]


@pytest.mark.parametrize("log", ["/proc/trtkit/x.log", "/dev/full", "model/config.json/x.log", "model"])
def test_a_log_that_cannot_be_written_is_an_error_before_work_begins(place: Place, log: str) -> None:
    """No folder, no room, a file for a folder, a folder for a file: exit 3, and nothing is made."""
    ran = place.run("convert", "--unattended", "--log-file", place.base / log)

    assert (3, "") == (ran.code, ran.out)
    assert "writing the log file" in ran.err
    assert not (place.base / "checkpoint").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_log_in_a_folder_of_somebody_else_is_an_error(place: Place) -> None:
    """A folder without write permission is named with what the system says."""
    folder = place.base / "logs"
    folder.mkdir(mode=0o555)
    for path in (place.base, *place.base.parents):
        if path.stat().st_uid == 0 and path != Path("/") and path != Path("/tmp"):
            path.chmod(0o755)
    command = job("profiles", "list")
    reachable = subprocess.run(command, user=65534, group=65534, capture_output=True, check=False).returncode == 0
    if not reachable:
        pytest.skip("nobody may not run the installed command on this machine")
    done = subprocess.run(
        job(*place.words("convert"), "--unattended", "--log-file", folder / "x.log"),
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert 3 == done.returncode
    assert f"writing the log file: {folder / 'x.log'}" in done.stderr
    assert "Permission denied" in done.stderr


def test_logs_rotate(place: Place) -> None:
    """Beyond --log-size the file moves aside, --log-keep of them stay, and no run's lines are torn."""
    log = place.base / "logs" / "x.log"
    for _ in range(6):
        place.run("convert", "--unattended", "--log-file", log, "--log-size", "600B", "--log-keep", "2")

    assert ["x.log", "x.log.1", "x.log.2"] == sorted(path.name for path in log.parent.iterdir())
    assert all(path.stat().st_size <= 600 for path in log.parent.iterdir())
    assert all(log_lines(path) for path in log.parent.iterdir())


def test_a_run_that_is_ended_says_how_to_go_on(place: Place) -> None:
    """SIGTERM under cron is 143, one line on stderr, and the log has it."""
    log = place.base / "x.log"
    with filelock.FileLock(place.base / ".checkpoint.lock"):
        command = job(*place.words("convert"), "--unattended", "--lock-wait", "60", "--log-file", log)
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
            deadline = time.monotonic() + 20
            while not log.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)
            found = re.search(r"process (\d+)", log.read_text())
            assert found is not None
            os.kill(int(found[1]), signal.SIGTERM)
            out, err = run.communicate(timeout=20)

    assert (143, "") == (run.returncode, out)
    assert "interrupted; run the same command again to go on\n" == err
    assert "ended with exit code 143" in log.read_text()


@pytest.mark.triton
def test_a_server_is_started_kept_refused_and_replaced(place: Place) -> None:
    """Started when none runs, silent while it is current, 1 when it is not, replaced by --restart."""
    serve = ["--start", "--background", "--unattended"]
    for verb in ("convert", "build"):
        assert 0 == place.run(verb, "--unattended").code
    started, kept = place.run("deploy", *serve), place.run("deploy", *serve)
    first = place.record()["pid"]
    assert (0, "", True) == (started.code, started.err, silent(kept))
    assert f"served by process {first} on http://127.0.0.1:" in started.out
    assert 1 == started.out.count("\n")

    place.change()
    assert 0 == place.run("build", "--unattended").code
    refused, again = place.run("deploy", *serve), place.run("deploy", *serve)
    assert [(1, "", 3), (1, "", 3)] == [(ran.code, ran.out, len(ran.err.splitlines())) for ran in (refused, again)]
    assert "KIT-SERVE-006" in refused.err
    assert first == place.record()["pid"]

    replaced, after = place.run("deploy", *serve, "--restart"), place.run("deploy", *serve, "--restart")
    second = place.record()["pid"]
    assert (0, "", True) == (replaced.code, replaced.err, silent(after))
    assert f"served by process {second} in place of {first} on" in replaced.out
    assert (False, True) == (alive(int(str(first))), alive(int(str(second))))
    well = under_cron("check-health", "-p", place.profile, "--repository", place.base / "repository")
    assert (0, "TRTKIT OK") == (well.code, well.out.split(":")[0])


@pytest.mark.triton
def test_a_new_server_that_does_not_come_up_is_3_and_says_that_nothing_serves(place: Place) -> None:
    """The old one is gone, the error says so with the reason of the new one, and the next run starts afresh."""
    serve = ["--start", "--background", "--unattended"]
    for verb in ("convert", "build"):
        place.run(verb, "--unattended")
    assert 0 == place.run("deploy", *serve).code
    first = place.record()["pid"]
    place.change()
    place.profile.write_text(place.profile.read_text().replace("serve: {", "serve: {start_grace: 10ms, "))
    place.run("build", "--unattended")
    failed = place.run("deploy", *serve, "--restart")

    assert (3, "") == (failed.code, failed.out)
    assert f"process {first} was stopped, and the new server did not come up" in failed.err
    assert "was not ready after 0.01 s" in failed.err
    assert not alive(int(str(first)))
    assert not (place.base / "repository.run.json").exists()
    place.profile.write_text(place.profile.read_text().replace("start_grace: 10ms, ", ""))
    assert 0 == place.run("deploy", *serve, "--restart").code


@pytest.mark.triton
def test_two_jobs_that_start_a_server_start_one(place: Place) -> None:
    """The second waits until the first has its server, and is silent."""
    for verb in ("convert", "build"):
        place.run(verb, "--unattended")
    command = job(*place.words("deploy"), "--start", "--background", "--unattended", "--lock-wait", "60")
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [run.communicate(timeout=120) for run in runs]

    assert ([0, 0], ["", ""]) == ([run.returncode for run in runs], [error for _, error in said])
    assert 1 == "".join(out for out, _ in said).count("served by process")


def test_options_that_need_each_other_are_asked_for(place: Place) -> None:
    """--restart alone replaces nothing: a usage error with what to add."""
    ran = place.run("deploy", "--start", "--restart")

    assert 2 == ran.code
    assert "--background" in ran.err
