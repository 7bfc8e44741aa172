"""A legacy repository and an llmapi repository of one small model, in two real Tritons beside each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Ran, trtkit, trtkit_path
from tests.support.ports import free_ports
from tests.support.rehearsal import make_repository, running
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.cli.app import run
from trtllm_kit.serve.process import Server
from trtllm_kit.spec.load import load_profile
from trtllm_kit.spec.profile import Serve

pytestmark = pytest.mark.triton
LEGACY: dict[str, Any] = {"toolchain": "mock", "trtllm_version": "0.18.2", "runtime": "reference"}
LLMAPI: dict[str, Any] = {"runtime": "reference"}
PROMPTS, TOKENS = 50, 12
LETTERS = 5 + 32, 5 + 126
"""Tokens of printable ASCII: five special ones stand before the bytes."""
FOUR = b"\x80\x40"
"""4.0 in BF16."""


def written(root: Path, *, altered: bool = False) -> Path:
    """Write the small model into ``root/model``; altered, one of its 83,000 weights is another.

    The head's rows of tokens that are no printable letter are zero, so that answers are text that hides nothing.
    """
    file = write_tiny_model(root / "model") / "model.safetensors"
    raw = bytearray(file.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    places = json.loads(raw[8 : 8 + length])
    begin, end = (8 + length + at for at in places["lm_head.weight"]["data_offsets"])
    row = (end - begin) // 272
    for token in range(272):
        if not LETTERS[0] <= token <= LETTERS[1]:
            raw[begin + token * row : begin + (token + 1) * row] = bytes(row)
    if altered:
        at = 8 + length + places["model.layers.0.self_attn.o_proj.weight"]["data_offsets"][0]
        assert FOUR != raw[at : at + 2]
        raw[at : at + 2] = FOUR
    file.write_bytes(raw)
    return root


def migrated(root: Path, legacy: Path) -> tuple[Path, Serve]:
    """Take a repository of the engine backend the documented way to one of the LLM API; on the CPU, by its runtime."""
    model, own = str(legacy.parent / "model"), root / "rehearsal.yaml"
    words = ["migrate", "engine", str(legacy), "--model", model, "--hardware", "cpu-rehearsal"]
    assert run([*words, "--out", str(root / "migrated")]) in (0, 1)  # 1: the plan would rather have a GPU
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    own.write_text(
        "base: migrated/profile.yaml\nname: rehearsal\nruntime: reference\n"
        f"limits: {{max_seq_len: 512, max_num_tokens: 512}}\nserve: {json.dumps(ports)}\n"
    )
    made = [str(root / name) for name in ("checkpoint", "engine", "repository")]
    for verb, given, out in zip(("convert", "build", "deploy"), (model, *made), made, strict=False):
        assert 0 == run([verb, given, "--profile", str(own), "--out", out])
    return Path(made[-1]), load_profile(str(own)).profile.serve


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """The legacy deployment, what ``migrate engine`` makes of it, and one with one weight altered."""
    pytest.importorskip("tokenizers")
    root = tmp_path_factory.mktemp("sides")
    legacy, legacy_plan = make_repository(written(root / "legacy"), LEGACY)
    (root / "migrated").mkdir()
    new, serve = migrated(root / "migrated", legacy)
    altered, altered_plan = make_repository(written(root / "altered", altered=True), LLMAPI)
    made = {"legacy": (legacy, legacy_plan.serve), "migrated": (new, serve), "altered": (altered, altered_plan.serve)}
    with ExitStack() as stack:
        yield {name: stack.enter_context(running(*one)) for name, one in made.items()}


def compared(old: Server, new: Server, *more: str) -> Ran:
    """Run the verb on two servers."""
    sizes = ("--prompts", str(PROMPTS), "--max-tokens", str(TOKENS), "--concurrency", "4")
    return trtkit("migrate", "compare", old.urls.http, new.urls.http, *sizes, *more)


def test_the_same_model_is_go(servers: dict[str, Server]) -> None:
    """All 50 answers of the ensemble and of the LLM API's model are the same text, and the verdict is go."""
    ran = compared(servers["legacy"], servers["migrated"], "--json")
    document = ran.json
    assert (0, "go", []) == (ran.code, document["verdict"], document["reasons"]), ran.out
    assert (PROMPTS, PROMPTS) == (document["prompts"]["asked"], document["prompts"]["same"])
    assert not any("replacement characters" in note or "streams another text" in note for note in document["notes"])
    assert ["triton-legacy", "triton"] == [document[side]["api"] for side in ("old", "new")]
    assert {"ttft.p50", "tpot.p50", "e2e.p50", "output_tokens_per_second"} <= {
        row["name"] for row in document["speed"]["rows"]
    }


def test_one_altered_weight_is_no_go_and_where(servers: dict[str, Server]) -> None:
    """Answers that part are named with the prompt and the place, and each place is where the two texts part."""
    ran = compared(servers["legacy"], servers["altered"], "--json")
    document = ran.json
    assert (1, "no-go") == (ran.code, document["verdict"])
    apart = document["differences"]
    assert 0 < len(apart) == document["prompts"]["different"]
    assert document["prompts"]["asked"] == PROMPTS == len(apart) + document["prompts"]["same"]
    for one in apart:
        old, new, at = one["old"]["answer"], one["new"]["answer"], one["character"]
        assert (old[:at], True) == (new[:at], old[at : at + 1] != new[at : at + 1])
    assert [f"{len(apart)} of {PROMPTS} answers differ (first: prompt {apart[0]['prompt']})"] == document["reasons"]


def test_the_bls_model_says_the_same_over_grpc(servers: dict[str, Server]) -> None:
    """The other way into the engine, and the other protocol, change no answer."""
    pytest.importorskip("tritonclient.grpc")
    old, new = (f"grpc://{servers[name].urls.grpc}" for name in ("legacy", "migrated"))
    ran = trtkit("migrate", "compare", old, new, "--model-old", "tensorrt_llm_bls", "--prompts", "8", "--max-tokens",
                 "6", "--json")  # fmt: skip
    assert (0, 8) == (ran.code, ran.json["prompts"]["same"]), ran.out + ran.err


@pytest.mark.slow
def test_a_server_that_ends_meanwhile_is_no_go(tmp_path: Path, servers: dict[str, Server]) -> None:
    """Answers that the dying side still owes are counted as failed; none of them is taken for equal."""
    repository, plan = make_repository(written(tmp_path), LLMAPI)
    with running(repository, plan.serve) as dying:
        words = [trtkit_path(), "migrate", "compare", servers["legacy"].urls.http, dying.urls.http, "--prompts", "30",
                 "--max-tokens", "60", "--timeout", "4s", "--concurrency", "10", "--json"]  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as comparing:
            assert comparing.stderr is not None
            assert any("new: 30 prompts, answers whole" in line for line in iter(comparing.stderr.readline, ""))
            os.kill(dying.pid, signal.SIGKILL)
            out, _ = comparing.communicate(timeout=120)
    document = json.loads(out)
    assert "error" not in document, out
    counts = document["prompts"]
    missing = sum(count for name, count in counts.items() if name.startswith("failed"))
    assert (1, True, 30) == (comparing.returncode, counts["failed on the new side"] > 0, missing + counts["same"])
