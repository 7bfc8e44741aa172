"""``trtkit migrate compare`` on deployments that say what a test wants."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

from tests.support.certificates import certificate, serving_with
from tests.support.cli import Ran, trtkit_path
from tests.support.ports import free_ports
from tests.support.scripted_server import Fault, Script, scripted
from tests.support.tiny_model import write_tiny_tokenizer
from trtllm_kit.cli.app import run
from trtllm_kit.cli.session import hoist_global_flags

PROMPTS = [f"Say the number {number}" for number in range(8)]
SIZES = ("--max-tokens", "9")


def echo(prompt: str, _times: int = 1) -> str:
    """Answer with the last word of the prompt, in capitals."""
    return f"it is {prompt.split()[-1]}"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of prompts, one a line."""
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS) + "\n\n")
    return path


@pytest.fixture
def old() -> Iterator[tuple[str, Script]]:
    """An ensemble of the engine backend."""
    script = Script(echo, "ensemble")
    with scripted(script) as url:
        yield url, script


Compared = Callable[..., Ran]


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Compared:
    """Runs the verb in this process, which starts no Python for each comparison."""

    def of(old: str, new: str, prompts: Path | str, *more: str | Path) -> Ran:
        capsys.readouterr()
        words = ["migrate", "compare", old, new, "--prompts", str(prompts), *SIZES, *map(str, more)]
        code = run(hoist_global_flags(words))
        return Ran(code, *capsys.readouterr())

    return of


def test_equal_deployments_are_go(compared: Compared, old: tuple[str, Script], prompts: Path, tmp_path: Path) -> None:
    """Exit 0; the file that was asked for holds the verdict, and every prompt was asked in full."""
    script = Script(echo)
    with scripted(script) as new:
        ran = compared(old[0], new, prompts, "--out", tmp_path / "verdict.json")
    assert (0, "GO") == (ran.code, ran.out.rstrip().splitlines()[-1]), ran.err
    assert ["go", 8] == [(held := json.loads((tmp_path / "verdict.json").read_text()))["verdict"],
                         held["prompts"]["same"]]  # fmt: skip
    assert set(PROMPTS) == {body["text_input"] for body in script.bodies}


def test_both_are_asked_greedily_and_alike(compared: Compared, old: tuple[str, Script], prompts: Path) -> None:
    """Each side's tensors say the likeliest token, the same length, no prompt in the answer; whole and in pieces."""
    script = Script(echo)
    with scripted(script) as new:
        compared(old[0], new, prompts)
    assert {(1, 9, True)} == {
        (body["top_k"], body["max_tokens"], body["exclude_input_in_output"]) for body in old[1].bodies
    }
    assert {(1, 9, True)} == {
        (body["sampling_param_top_k"], body["sampling_param_max_tokens"],
         body["sampling_param_exclude_input_from_output"]) for body in script.bodies
    }  # fmt: skip
    assert {10 + 8: False, 8: True} == {
        sum(body["stream"] is pieces for body in old[1].bodies): pieces for pieces in (False, True)
    }


def test_openai_is_asked_greedily(compared: Compared, old: tuple[str, Script], prompts: Path) -> None:
    """trtllm-serve samples where it is not told otherwise, so it is told; an ensemble may move to it."""
    script = Script(echo, "openai")
    with scripted(script) as new:
        ran = compared(old[0], new, prompts, "--json")
    assert (0, "openai", {0.0}) == (
        ran.code, ran.json["new"]["api"], {body["temperature"] for body in script.bodies}
    )  # fmt: skip


def test_an_answer_of_one_letter_again_and_again_is_whole(compared: Compared, prompts: Path) -> None:
    """What comes in growing pieces of one letter is no stream that repeats itself where the interface has none."""
    with (
        scripted(Script(lambda prompt, _: f"{'o' * 9}{prompt.split()[-1]}", "ensemble")) as old,
        scripted(Script(lambda prompt, _: f"{'o' * 9}{prompt.split()[-1]}", "openai", grows=True)) as new,
    ):
        ran = compared(old, new, prompts, "--json")
    assert (0, 8) == (ran.code, ran.json["prompts"]["same"])


def test_another_answer_is_no_go_with_its_place(
    compared: Compared, old: tuple[str, Script], prompts: Path, tmp_path: Path
) -> None:
    """Exit 1; the text names the prompt, the character, the token, and how both go on."""
    pytest.importorskip("tokenizers")
    write_tiny_tokenizer(tmp_path)
    with scripted(Script(lambda prompt, _: "it was 5" if prompt == PROMPTS[5] else echo(prompt))) as new:
        ran = compared(old[0], new, prompts, "--tokenizer", tmp_path)
    assert (1, "NO-GO") == (ran.code, ran.out.rstrip().splitlines()[-1])
    for said in (
        "prompt 6: Say the number 5",
        "  at character 3, token 3",
        "  old: 'it ' then 'is 5'",
        "  new: 'it ' then 'was 5'",
        "because: 1 of 8 answers differ (first: prompt 6)",
    ):
        assert said in ran.out.splitlines()


def test_an_echo_is_named_and_may_be_allowed(compared: Compared, old: tuple[str, Script], prompts: Path) -> None:
    """A deployment that repeats the prompt is no-go by that name, and go when the operator allows it."""
    with scripted(Script(lambda prompt, _: prompt + echo(prompt))) as new:
        found = [compared(old[0], new, prompts, *more) for more in ((), ("--allow", "echo"))]
    assert [1, 0] == [ran.code for ran in found]
    assert "because: 8 answers differ by echo (first: prompt 1); --allow echo lets it pass" in found[0].out


def test_an_old_deployment_that_samples_proves_nothing(compared: Compared, prompts: Path) -> None:
    """It says something else each time: no-go, and the reason is the old side."""
    with (
        scripted(Script(lambda prompt, times: f"{echo(prompt)} {times}", "ensemble")) as old,
        scripted(Script(echo)) as new,
    ):
        ran = compared(old, new, prompts, "--allow-different", "8")
    assert (1, True) == (ran.code, "the old deployment disagrees with itself on 5 of 5" in ran.out)


def test_errors_and_silence_are_counted(compared: Compared, old: tuple[str, Script], prompts: Path) -> None:
    """A prompt that the new side refuses and one that it is silent on are both told of, by kind."""
    faults = {PROMPTS[6]: Fault(status=503), PROMPTS[7]: Fault(seconds=4.0)}
    with scripted(Script(lambda prompt, _: faults.get(prompt, echo(prompt)))) as new:
        ran = compared(old[0], new, prompts, "--timeout", "1s", "--json", "--whole")
    assert (1, 2, 6) == (ran.code, ran.json["prompts"]["failed on the new side"], ran.json["prompts"]["same"])
    assert ["status", "stalled"] == [one["new"]["failure"] for one in ran.json["differences"]]


def test_a_server_without_streams_is_compared_whole(compared: Compared, prompts: Path) -> None:
    """A repository that is not decoupled gives whole answers only: both are asked for those, and it is said."""
    script = Script(echo)
    with scripted(Script(echo, "ensemble", decoupled=False)) as old, scripted(script) as new:
        ran = compared(old, new, prompts, "--json")
    assert (0, 8, {False}) == (
        ran.code, ran.json["prompts"]["same"], {body["streaming"] for body in script.bodies}
    )  # fmt: skip
    assert "the old deployment gives whole answers only" in ran.err


def test_nobody_there_cannot_be_compared(compared: Compared, old: tuple[str, Script], prompts: Path) -> None:
    """Exit 3 where a side is away, whether its interface is named or asked for."""
    (port,) = free_ports(1)
    away = f"http://127.0.0.1:{port}"
    found = [compared(old[0], away, prompts, *more) for more in ((), ("--api-new", "triton"))]
    assert [3, 3] == [ran.code for ran in found]
    assert "try: start the server, or name --api-new and --model-new" in found[0].err
    assert "the new deployment at" in found[1].err


def test_an_interface_that_has_no_grpc_is_refused_by_the_option_of_its_side(
    compared: Compared, old: tuple[str, Script], prompts: Path
) -> None:
    """The way out names an option that this verb has."""
    ran = compared(old[0], "grpc://127.0.0.1:1", prompts, "--api-new", "openai")
    assert (2, []) == (ran.code, old[1].bodies)
    assert "--api-new openai over grpc://" in ran.err
    assert "try: --api-new triton" in ran.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--allow", "nonsense"), "--allow nonsense"),
        (("--slower-by", "a bit"), "--slower-by a bit"),
        (("--api-new", "soap"), "--api-new soap"),
        (("--bearer-old", "/nowhere/token"), "--bearer-old /nowhere/token"),
        (("--ca", "/nowhere/ca.pem"), "--ca /nowhere/ca.pem"),
        (("--timeout", "0s"), "--timeout 0s"),
        (("--prompts", "0"), "--prompts 0"),
    ],
)
def test_a_wrong_question_sends_nothing(
    compared: Compared, old: tuple[str, Script], prompts: Path, more: tuple[str, ...], said: str
) -> None:
    """Exit 2 by the name of the option, before any prompt is sent."""
    ran = compared(old[0], old[0], prompts, *more)
    assert (2, True, []) == (ran.code, said in ran.err, old[1].bodies)


def test_a_token_goes_to_its_own_side_alone(
    compared: Compared, old: tuple[str, Script], prompts: Path, tmp_path: Path
) -> None:
    """What the new deployment is told in secret the old one never hears, and no output holds it."""
    (tmp_path / "token").write_text("s3cr3t\n")
    script = Script(echo)
    with scripted(script) as new:
        ran = compared(old[0], new, prompts, "--bearer-new", tmp_path / "token", "--header", "X-Tenant:a")
    assert 0 == ran.code, ran.err
    assert {("Bearer s3cr3t", "a")} == {(head.get("Authorization"), head["X-Tenant"]) for head in script.heads}
    assert {(None, "a")} == {(head.get("Authorization"), head["X-Tenant"]) for head in old[1].heads}
    assert "s3cr3t" not in ran.out + ran.err


def test_over_tls_with_a_certificate_of_its_own(
    compared: Compared, old: tuple[str, Script], prompts: Path, tmp_path: Path
) -> None:
    """With --ca it is compared as ever; without, the certificate is refused and named."""
    both = certificate(tmp_path)
    with scripted(Script(echo), serving_with(both)) as new:
        found = [compared(old[0], new, prompts, *more) for more in (("--ca", both), ())]
        named = compared(old[0], new, prompts, "--api-new", "triton")
    assert [0, 3, 3] == [ran.code for ran in (*found, named)], found[0].err
    assert "the certificate of 127.0.0.1" in found[1].err
    assert "self-signed certificate" in named.err


def test_made_prompts_are_as_many_and_the_same_each_time(compared: Compared, old: tuple[str, Script]) -> None:
    """A number makes so many different prompts, the same for the same seed."""
    asked = []
    for seed in ("1", "1", "2"):
        old[1].bodies.clear()
        compared(old[0], old[0], "7", "--seed", seed, "--whole")
        asked.append({body["text_input"] for body in old[1].bodies})
    assert [7, True, False] == [len(asked[0]), asked[0] == asked[1], asked[0] == asked[2]]


def test_an_interrupt_is_no_verdict(old: tuple[str, Script], prompts: Path, tmp_path: Path) -> None:
    """A comparison that is ended half way says neither go nor no-go, and leaves no file."""
    with scripted(Script(lambda *_: Fault(seconds=30.0))) as new:
        words = [trtkit_path(), "migrate", "compare", old[0], new, "--prompts", str(prompts), "--out",
                 str(tmp_path / "verdict.json")]  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as comparing:
            assert comparing.stderr is not None
            assert any("new: 5 prompts twice" in line for line in iter(comparing.stderr.readline, ""))
            comparing.send_signal(signal.SIGTERM)
            killed = Timer(20, comparing.kill)
            killed.start()
            out, _ = comparing.communicate()
            killed.cancel()
    assert (143, "", False) == (comparing.returncode, out, (tmp_path / "verdict.json").exists())
