"""Resolving a model by name, against a small hub of our own on this machine."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.errors import MissingExtra, ModelNotFound
from trtllm_kit.progress import Silent
from trtllm_kit.spec import hub

COMMIT = "a" * 40
WANTED = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"w" * 300_000,
}
UNWANTED = {
    "consolidated.safetensors": b"w" * 9,
    "original/weights.safetensors": b"w" * 9,
    "pytorch_model.bin": b"w" * 9,
    "README.md": b"",
}
FILES = WANTED | UNWANTED
ERRORS = {"gone": (404, "RepoNotFound"), "gated": (403, "GatedRepo"), "broken": (500, "")}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers what huggingface-hub asks about ``org/name``, and refuses the models of ``ERRORS``."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.answer(body=False)

    def do_GET(self) -> None:
        """Answer."""
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        """Find what is asked for."""
        path = self.path.partition("?")[0]
        name = path.split("/")[4] if path.startswith("/api/models/org/") else ""
        if name in ERRORS:
            status, code = ERRORS[name]
            self.reply(b"{}", {"X-Error-Code": code}, body=body, status=status)
        elif path.startswith("/api/models/org/name/tree/"):
            rows = [
                {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for file, data in FILES.items()
            ]
            self.reply(json.dumps(rows).encode(), {}, body=body)
        elif name == "name":
            files = [{"rfilename": file} for file in FILES]
            self.reply(json.dumps({"id": "org/name", "sha": COMMIT, "siblings": files}).encode(), {}, body=body)
        elif path.startswith(f"/org/name/resolve/{COMMIT}/"):
            data = FILES[path.split(f"{COMMIT}/")[1]]
            tag = f'"{hashlib.sha1(data).hexdigest()}"'
            self.reply(data, {"X-Repo-Commit": COMMIT, "ETag": tag}, body=body)
        else:
            self.reply(b"", {}, body=body, status=404)

    def reply(self, data: bytes, headers: dict[str, str], *, body: bool, status: int = 200) -> None:
        """Send one answer."""
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Run the hub on a free port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


SCRIPT = """
import json, sys
from trtllm_kit.errors import KitError
from trtllm_kit.spec.hub import resolve_model

class Told:
    started, advanced, finished = [], 0.0, 0
    def start(self, label, total, unit): self.started.append((label, total, unit))
    def advance(self, amount): self.advanced += amount
    def finish(self): self.finished += 1

told = Told()
try:
    folder = resolve_model(sys.argv[1], told)
    answer = {"files": sorted(file.name for file in folder.iterdir())}
except KitError as error:
    answer = {"code": error.code, "lines": error.lines()}
print(json.dumps(answer | {"started": told.started, "advanced": told.advanced, "finished": told.finished}))
"""


def resolve(hub_id: str, endpoint: str, home: Path, **environment: str) -> dict[str, Any]:
    """Resolve a hub id in a fresh process, as huggingface-hub reads its settings once."""
    pytest.importorskip("huggingface_hub", reason="needs the extra [hub]")
    settings = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    inherited = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, hub_id],
        env=inherited | {"NO_PROXY": "127.0.0.1"} | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Traceback" not in done.stderr
    assert "%|" not in done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_hub_id_is_downloaded_once_with_progress(endpoint: str, tmp_path: Path) -> None:
    """Only what the kit reads is fetched, every byte of it is told, and a second run needs no network."""
    first = resolve("org/name", endpoint, tmp_path)
    second = resolve("org/name", "http://127.0.0.1:9", tmp_path)

    size = sum(len(data) for data in WANTED.values())
    assert sorted(WANTED) == first["files"] == second["files"]
    assert [["downloading org/name", size, "bytes"]] == first["started"]
    assert (size, 1) == (first["advanced"], first["finished"])
    assert (0, 1) == (second["advanced"], second["finished"])


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("gone", "the hub has no such model", "check the spelling"),
        ("gated", "accounts that accepted its licence", "hf auth login"),
        ("broken", "500", "name the folder"),
    ],
)
def test_what_the_hub_refuses(endpoint: str, tmp_path: Path, name: str, why: str, hint: str) -> None:
    """A missing, a gated and a failing model are told apart, in three lines."""
    answer = resolve(f"org/{name}", endpoint, tmp_path)

    what, because, hinted = answer["lines"]
    assert "KIT-MODEL-004" == answer["code"]
    assert f"cannot fetch org/{name} from the hub" in what
    assert why in because
    assert hint in hinted
    assert 1 == answer["finished"]


@pytest.mark.parametrize("environment", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_offline(tmp_path: Path, environment: dict[str, str]) -> None:
    """Without a network, or with it switched off, the error says to pass a folder."""
    answer = resolve("org/other", "http://127.0.0.1:9", tmp_path, **environment)

    assert "KIT-MODEL-004" == answer["code"]
    assert "its cache here holds no whole copy" in answer["lines"][1]
    assert "name the folder" in answer["lines"][2]


def test_a_cache_that_cannot_be_written(endpoint: str, tmp_path: Path) -> None:
    """A disk in the way is a storage error, not the hub's fault."""
    (tmp_path / "hub").touch()

    answer = resolve("org/name", endpoint, tmp_path)

    assert "KIT-ARTIFACT-003" == answer["code"]
    assert f"errno {errno.ENOTDIR}" in answer["lines"][1] or f"errno {errno.EEXIST}" in answer["lines"][1]


def test_a_local_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is taken as it is, also when its path looks like a hub id, without huggingface-hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (tmp_path / "org" / "name").mkdir(parents=True)

    assert tmp_path == hub.resolve_model(str(tmp_path), Silent())
    assert Path("org/name") == hub.resolve_model("org/name", Silent())


@pytest.mark.parametrize("text", ["nothing", "./org/name", "/org/name", "a/b/c", "org/", "-x/y", "org/na me", ""])
def test_what_is_neither_folder_nor_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A name that cannot be a hub id is never asked of the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    if not text:
        (tmp_path / "file").touch()
        text = "file"

    with pytest.raises(ModelNotFound) as caught:
        hub.resolve_model(text, Silent())

    assert f"no model at {text}" == caught.value.what


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub id without huggingface-hub names the extra that brings it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(MissingExtra) as caught:
        hub.resolve_model("org/name", Silent())

    assert "pip install 'trtllm-kit[hub]'" in caught.value.hint
