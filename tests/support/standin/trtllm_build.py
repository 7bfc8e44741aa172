"""A strict stand-in for ``trtllm-build``: one release's options, its rewrites of them, an engine folder of its shape.

``STANDIN_RELEASE`` names the release and ``STANDIN_FAIL`` how to fail; ``STANDIN_SM`` is the GPU's compute capability.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.standin.reconcile import Settings, reconciled
from trtllm_kit.upstream.facts import version_key
from trtllm_kit.upstream.trtllm_build import BuildFlag, build_flags

FAILURES = ("oom_at_rank_3", "killed_at_60_percent", "wrong_dtype", "disk_full", "hang", "no_engine", "silent")
"""What ``STANDIN_FAIL`` may say."""


def parser_of(release: str) -> argparse.ArgumentParser:
    """Return a parser that takes exactly that release's options."""
    parser = argparse.ArgumentParser(prog="trtllm-build", allow_abbrev=False)
    for flag in build_flags(release):
        parser.add_argument(*_names(flag), **_kind(flag))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Build as the release would, or fail as asked."""
    release, failure = os.environ["STANDIN_RELEASE"], os.environ.get("STANDIN_FAIL", "")
    if failure and failure not in FAILURES:
        sys.exit(f"STANDIN_FAIL {failure!r} is none of {', '.join(FAILURES)}")
    _say(f"[TensorRT-LLM] TensorRT-LLM version: {release}")
    given = vars(parser_of(release).parse_args(arguments))
    checkpoint, out = Path(given["checkpoint_dir"]), Path(given["output_dir"])
    pretrained = json.loads((checkpoint / "config.json").read_text())
    settings = reconciled(release, given, pretrained, int(os.environ.get("STANDIN_SM", "90")))
    if failure == "silent":
        return 0
    out.mkdir(parents=True, exist_ok=True)
    ranks = pretrained["mapping"]["world_size"]
    for rank in range(ranks):
        _fail(failure, rank, ranks, out)
        _rank(checkpoint, out, rank, settings)
    (out / "config.json").write_text(json.dumps(_config(release, pretrained, settings), indent=1))
    if pretrained["quantization"].get("quant_algo") == "MIXED_PRECISION":
        (out / "quant_cfg.json").write_bytes((checkpoint / "quant_cfg.json").read_bytes())
    Path(given["output_timing_cache"]).write_bytes(b"timings")
    _say(f"[I] Total time of building all engines: 00:00:0{min(ranks, 9)}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _names(flag: BuildFlag) -> tuple[str, ...]:
    return (flag.flag, *flag.aliases)


def _kind(flag: BuildFlag) -> dict[str, Any]:
    if flag.takes == "flag":
        return {"action": "store_true"}
    kind: dict[str, Any] = {"default": flag.default}
    if flag.takes == "whole":
        kind["type"] = int
    if flag.takes == "words":
        kind["nargs"] = "+"
    choices = ("enable", "disable") if flag.takes == "switch" else flag.choices
    return kind | ({"choices": choices} if choices else {})


def _rank(checkpoint: Path, out: Path, rank: int, settings: Settings) -> None:
    """Write one rank: the hash of its weights and of the settings, so that other inputs make other bytes."""
    weights = (checkpoint / f"rank{rank}.safetensors").read_bytes()
    _say(f"[I] Loading weights of rank {rank}\n[I] Build TensorRT engine Unnamed Network {rank}")
    digest = hashlib.sha256(weights + json.dumps(settings.build, sort_keys=True).encode()).hexdigest()
    _say(f"[I] Serializing engine to {out}/rank{rank}.engine...")
    (out / f"rank{rank}.engine").write_text(f"stand-in engine {rank} {digest}\n")
    _say("[I] Engine serialized. Total time: 00:00:00")


def _fail(failure: str, rank: int, ranks: int, out: Path) -> None:
    """Fail at this rank when it is the one to fail at."""
    if failure == "oom_at_rank_3" and rank == 3:
        sys.exit("[E] [defaultAllocator.cpp::allocate] Requested amount of GPU memory (24793579520 bytes) could not be "
                 "allocated. Cuda Runtime (out of memory)")  # fmt: skip
    if failure == "killed_at_60_percent" and rank >= 0.6 * ranks:
        os.kill(os.getpid(), signal.SIGKILL)
    if failure == "wrong_dtype":
        sys.exit("[E] Gemm: could not find any supported formats consistent with input/output data types")
    if failure == "disk_full" and rank == ranks - 1:
        (out / f"rank{rank}.engine").write_text("half of an eng")
        raise OSError(28, "No space left on device", str(out / f"rank{rank}.engine"))
    if failure == "no_engine":
        _say("[E] IBuilder::buildSerializedNetwork: Error Code 4: Internal Error")
        sys.exit("TypeError: a bytes-like object is required, not 'NoneType'")
    if failure == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(os.environ["STANDIN_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
        _say("[I] Build TensorRT engine Unnamed Network 0")
        time.sleep(600)


def _config(release: str, pretrained: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the engine's ``config.json``, with the keys the release writes."""
    build = dict(settings.build)
    if version_key(release) < version_key("0.13"):
        build.pop("kv_cache_type", None)
    return {"version": release, "pretrained_config": pretrained, "build_config": build}


if __name__ == "__main__":
    sys.exit(main())
