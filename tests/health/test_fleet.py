"""Checks from cron: the state between them, several targets, the short way, and who is told."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.health.support import SEEDS, Serve, answers, engine_page, free_port, page, stub_server
from tests.support.cli import trtkit
from trtllm_kit.cli.check_options import OPTIONS, read_words
from trtllm_kit.errors import ProfileError
from trtllm_kit.health.check import Pace
from trtllm_kit.health.compiled import digest_of, keep_question, question_path, recall_question
from trtllm_kit.health.fleet import check_all
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.state_file import keep, recall, state_folder, state_path
from trtllm_kit.health.targets import read_targets
from trtllm_kit.health.textfile import write_textfile
from trtllm_kit.health.verdict import State, Verdict

PROFILE = "cpu-rehearsal-simulated"
RULES = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))
FAST = Pace(None, 0.05, 2.0)


def check(url: str, folder: Path, rules: Ruleset = RULES) -> tuple[Verdict, bool]:
    """Check one target with a state folder."""
    ((verdict, changed),) = check_all([(Target(url), rules)], FAST, str(folder))
    return verdict, changed


def beating() -> Serve:
    """Serve a page whose heartbeat beats and whose engine moves."""

    def serve(connection: socket.socket) -> None:
        now = time.time()
        answers(engine_page(heartbeat=now, iteration=int(now * 1000)))(connection)

    return serve


def test_the_first_check_reads_as_often_as_needed_and_the_next_once(tmp_path: Path) -> None:
    """With what the first check left, one reading tells that the server lives and moves."""
    with stub_server(beating()) as url:
        assert (2, 1, 1) == tuple(check(url, tmp_path)[0].samples for _ in range(3))


def test_a_heartbeat_that_stands_still_between_checks_is_looked_at_again(tmp_path: Path) -> None:
    """The same heartbeat as in the check before is watched until it is sure, and then CRITICAL."""
    with stub_server(answers(engine_page(heartbeat=1_795_993_500))) as url:
        check_all([(Target(url), RULES)], Pace(1, 0.0, 2.0), str(tmp_path))
        verdict, _ = check(url, tmp_path)
    assert State.CRITICAL is verdict.state
    assert verdict.samples > 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 9}', b"\xff\xfe", b"[" * 100_000])
def test_a_state_that_is_no_state_is_unknown_once(tmp_path: Path, content: bytes) -> None:
    """A file that was destroyed is told once, written anew, and forgotten."""
    with stub_server(beating()) as url:
        check(url, tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        states = [check(url, tmp_path)[0].state for _ in range(2)]
    assert [State.UNKNOWN, State.OK] == states


def test_a_state_that_cannot_be_written_is_noted_and_changes_no_verdict(tmp_path: Path) -> None:
    """Where the folder is a file every check is a first one, and says so."""
    (tmp_path / "state").write_text("a file")
    with stub_server(beating()) as url:
        verdict, _ = check(url, tmp_path / "state")
    assert State.OK is verdict.state
    assert ["memory"] == [skip.rule for skip in verdict.not_judged if skip.rule == "memory"]


def test_the_state_holds_no_address(tmp_path: Path) -> None:
    """Neither the name of the state file nor what is in it tells where a server is."""
    with stub_server(beating()) as url:
        check(url, tmp_path)
    (file,) = tmp_path.iterdir()
    assert url.split("/")[2] not in file.read_text() + file.name


def test_two_checks_at_once_leave_one_whole_state(tmp_path: Path) -> None:
    """Twenty checks side by side each read and leave a whole file."""
    with stub_server(beating()) as url:
        questions = [(Target(url, name=str(number % 2)), RULES) for number in range(20)]
        verdicts = check_all(questions, FAST, str(tmp_path))
        assert {State.OK} == {verdict.state for verdict, _ in verdicts}
    assert 2 == len(list(tmp_path.glob("*.json")))
    for number in range(2):
        assert recall(state_path(str(tmp_path), Target(url, name=str(number))))[1] is None


def test_a_change_is_told_once(tmp_path: Path) -> None:
    """OK, full, full, OK: only the second and the fourth check are another verdict than the one before."""
    busy, well = answers(engine_page(fraction=0.99)), answers(engine_page())
    turn = {"now": well}
    with stub_server(lambda connection: turn["now"](connection)) as url:
        told = []
        for serve in (well, busy, busy, well):
            turn["now"] = serve
            told.append(check(url, tmp_path)[1])
    assert [False, True, False, True] == told


def test_targets_are_checked_side_by_side_and_in_order(tmp_path: Path) -> None:
    """Each of eight servers answers only while all are asked, and the verdicts come in the targets' order."""
    all_asked = threading.Barrier(8, timeout=10.0)

    def slow(connection: socket.socket) -> None:
        all_asked.wait()
        answers(engine_page())(connection)

    with stub_server(slow) as url:
        targets = [Target(url, name=f"t{number}") for number in range(8)]
        verdicts = check_all([(target, RULES) for target in targets], Pace(1, 0.0, 10.0), None)
    assert ["ok"] * 8 == ["ok" if _scraped(verdict) else "not read" for verdict, _ in verdicts]
    assert [target.name for target in targets] == [verdict.name for verdict, _ in verdicts]


def _scraped(verdict: Verdict) -> bool:
    return any(finding.rule == "scrape" and finding.state is State.OK for finding in verdict.findings)


def test_one_dead_target_of_several_is_critical_and_named() -> None:
    """The gravest target is the state of all; the line counts them and the dead one is named."""
    with stub_server(answers(page("triton-2.51-heartbeat-idle-1"), page("triton-2.51-heartbeat-idle-2"))) as url:
        dead = f"http://127.0.0.1:{free_port()}/metrics"
        ran = trtkit("check-health", "-p", PROFILE, "--url", url, "--url", dead, "--interval", "0.1")
    lines = ran.out.splitlines()
    assert 2 == ran.code
    assert lines[0].startswith("TRTKIT CRITICAL: 2 targets: 1 CRITICAL, ")
    assert any(line.startswith(f"{dead} CRITICAL: scrape: ") for line in lines)


def test_targets_from_a_file(tmp_path: Path) -> None:
    """A JSON file names targets; each wrong key of it is named, all at once."""
    file = tmp_path / "targets.json"
    file.write_text(json.dumps({"targets": [{"name": "a", "url": "http://h:1/metrics", "beside": ["http://h:2/m"]}]}))
    assert [Target("http://h:1/metrics", name="a", beside=("http://h:2/m",))] == read_targets(file)
    file.write_text(json.dumps({"targets": [{"url": 1}, {"url": "http://h:1/", "colour": "red", "ranks": ["x"]}]}))
    with pytest.raises(ProfileError) as raised:
        read_targets(file)
    assert 3 == len(raised.value.problems)
    odd = [{"url": "http://h:1/", "ranks": [0]}, {"url": "http://h:1/", "ranks": [-1]}]
    odd += [{"url": "http://h:1/", "start_grace_seconds": grace} for grace in (True, -1, float("inf"), float("nan"))]
    file.write_text(json.dumps({"targets": odd}))
    with pytest.raises(ProfileError) as raised:
        read_targets(file)
    assert 6 == len(raised.value.problems)


@pytest.fixture
def served() -> Iterator[str]:
    """Serve a page that beats."""
    with stub_server(beating()) as url:
        yield url


def test_the_short_way_says_what_the_long_way_says(served: str, own_state: Path) -> None:
    """The second check goes the short way: the same state, checks and lines, but for the numbers."""
    arguments = ("check-health", "-p", PROFILE, "--url", served, "--json", "--interval", "0.1")
    first, second = trtkit(*arguments), trtkit(*arguments)
    assert 1 == len(list(own_state.glob("question-*")))
    for key in ("state", "exit_code", "url", "not_applicable"):
        assert first.json[key] == second.json[key]
    assert {f["rule"] for f in first.json["findings"]} == {f["rule"] for f in second.json["findings"]}


def test_a_changed_profile_is_read_anew(served: str, tmp_path: Path) -> None:
    """What a question came to is passed over when the profile, or its base, is another file than then."""
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    base.write_text(f"base: {PROFILE}\nschema_version: 1\nname: base\n")
    own.write_text("base: ./base.yaml\nschema_version: 1\nname: own\n")
    arguments = ("check-health", "-p", own, "--url", served, "--interval", "0.1")
    assert [0, 0] == [trtkit(*arguments).code for _ in range(2)]
    with base.open("a") as file:
        file.write('alerts:\n  kv-cache-usage: {ok: "0:0.1", severity: critical}\n')
    assert [2, 2] == [trtkit(*arguments).code for _ in range(2)]


def test_the_short_way_reads_no_yaml_and_no_command_line(served: str) -> None:
    """A check that was asked before imports neither YAML, pydantic nor the command line of all verbs."""
    arguments = ["check-health", "-p", PROFILE, "--url", served, "--interval", "0.1"]
    trtkit(*arguments)
    wanted = "{'yaml', 'pydantic', 'typer', 'rich', 'numpy'} & sys.modules.keys()"
    code = f"import sys, os; sys.argv = ['trtkit', *{arguments!r}]\n"
    code += f"os._exit = lambda code: print(sorted({wanted}), code)\n"
    code += "import types; sys.modules['trtllm_kit.cli.app'] = types.SimpleNamespace(main=lambda: None)\n"
    code += "from trtllm_kit.cli import entry; entry.main()\n"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "[] 0" == ran.stdout.splitlines()[-1], ran.stdout + ran.stderr


def test_a_question_whose_rules_are_kept_is_the_same_question(tmp_path: Path) -> None:
    """Every rule and target survives the file."""
    asked = read_words(["--url", "http://h:1/metrics"])
    assert asked is not None
    target = Target("http://h:1/metrics", 60.0, 5.0, 7, "/l", beside=("http://h:2/",), ranks=(3, 4))
    questions = [(target, Ruleset(shipped_rules()))]
    source = tmp_path / "rules.yaml"
    source.write_text("a")
    keep_question(asked, str(tmp_path), questions, [str(source), str(tmp_path / "none")])
    assert questions == recall_question(asked, str(tmp_path))
    source.write_text("b")
    assert recall_question(asked, str(tmp_path)) is None
    assert "" == digest_of(str(tmp_path / "none"))


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"made_from": {}, "questions": [[{}, []]]}', b"\xff"])
def test_a_kept_question_that_is_none_is_asked_the_long_way(tmp_path: Path, content: bytes) -> None:
    """Whatever stands in its file, the long way answers."""
    asked = read_words([])
    assert asked is not None
    Path(question_path(asked, str(tmp_path))).write_bytes(content)
    assert recall_question(asked, str(tmp_path)) is None


@pytest.mark.parametrize(
    "words",
    [["--no"], ["--url"], ["--url", "--json"], ["--samples", "0"], ["--samples", "x"], ["--interval", "nan"], ["x"],
     ["--once=1"], ["-p=x"], ["--help"], ["--interval", "-1"]],
)  # fmt: skip
def test_what_is_not_plainly_right_goes_the_long_way(words: list[str]) -> None:
    """The short way judges no mistake: it leaves them to the command line."""
    assert read_words(words) is None


def test_every_option_is_read_on_the_short_way() -> None:
    """Each option that the command line has is read by the short way too, in both spellings of a value."""
    samples = {str: "x", int: "3", float: "2.5", bool: ""}
    for option in OPTIONS:
        flag, value = option.flags[0], samples[option.kind]
        spellings = [[flag]] if option.kind is bool else [[flag, value], [f"{flag}={value}"]]
        for words in spellings:
            read = read_words(words)
            assert read is not None
            expected = True if option.kind is bool else option.kind(value)
            assert ((expected,) if option.many else expected) == read[option.name]


def test_the_hook_is_run_on_a_change_with_the_verdict(served: str, tmp_path: Path) -> None:
    """A command gets the JSON of a verdict that changed, and is not run again for the same one."""
    out = tmp_path / "told.json"
    script = tmp_path / "hook"
    script.write_text(f'#!/bin/sh\ncat >> "{out}"; echo >> "{out}"\n')
    script.chmod(0o755)
    dead = f"http://127.0.0.1:{free_port()}/metrics"
    for _ in range(2):
        assert 2 == trtkit("check-health", "-p", PROFILE, "--url", dead, "--exec", str(script)).code
    assert 1 == out.read_text().count('"exit_code": 2')
    assert 0 == trtkit("check-health", "-p", PROFILE, "--url", served, "--exec", str(script), "--interval", "0.1").code
    assert 1 == out.read_text().count('"exit_code"')


def test_a_webhook_gets_the_verdict() -> None:
    """The JSON is posted to the address."""
    seen: list[bytes] = []
    with stub_server(answers("ok"), seen) as url:
        dead = f"http://127.0.0.1:{free_port()}/metrics"
        trtkit("check-health", "-p", PROFILE, "--url", dead, "--webhook", url)
    assert 1 == len(seen)
    assert seen[0].startswith(b"POST /metrics HTTP/1.1")


def test_the_textfile_passes_prometheus_own_reader(served: str, tmp_path: Path) -> None:
    """What is written for node_exporter is read by prometheus-client, and promtool has nothing to say of it."""
    file = tmp_path / "trtkit.prom"
    assert 0 == trtkit("check-health", "-p", PROFILE, "--url", served, "--prom", file, "--interval", "0.1").code
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    assert [0.0] == [sample.value for sample in families["trtkit_health_state"].samples]
    assert "kv_cache_usage" in {sample.labels["metric"] for sample in families["trtkit_health_value"].samples}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("trtkit.prom.")]
    promtool = shutil.which("promtool")
    if promtool is not None:
        ran = subprocess.run(
            [promtool, "check", "metrics"], stdin=file.open(), capture_output=True, text=True, check=False
        )
        assert (0, "") == (ran.returncode, ran.stdout + ran.stderr)


def test_where_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, then the XDG folder, then the home folder."""
    assert "/s" == state_folder({"TRTKIT_STATE": "/s", "XDG_STATE_HOME": "/x"})
    assert "/x/trtkit/health" == state_folder({"XDG_STATE_HOME": "/x"})
    monkeypatch.setenv("HOME", "/h")
    assert "/h/.local/state/trtkit/health" == state_folder({})


def test_a_state_is_written_whole(tmp_path: Path) -> None:
    """No partial file is left, and the folder is the owner's alone."""
    path = tmp_path / "a" / "b.json"
    assert "" == keep(str(path), NOTHING)
    assert ["b.json"] == [one.name for one in path.parent.iterdir()]
    assert 0o700 == path.parent.stat().st_mode & 0o777
    assert "" != keep("/proc/none/b.json", NOTHING)


def test_the_textfile_says_the_gravest_of_two_findings(tmp_path: Path) -> None:
    """A check that a target has twice shows the graver state."""
    with stub_server(answers(engine_page("a", fraction=0.99) + engine_page("b"))) as url:
        ((verdict, _),) = check_all([(Target(url), RULES)], Pace(1, 0.0, 2.0), None)
    write_textfile(str(tmp_path / "x.prom"), [verdict])
    text = (tmp_path / "x.prom").read_text()
    assert 'trtkit_health_finding_state{check="kv-cache-usage",subject="a/1",target="' in text
