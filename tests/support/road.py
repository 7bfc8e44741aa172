"""A profile for a tiny model on ports that nobody uses, and whether a process still lives."""

from __future__ import annotations

from pathlib import Path

from tests.support.ports import free_ports


def profile_text(name: str, parent: str) -> str:
    """Write a profile that differs from its parent in its ports and limits."""
    http, grpc, metrics = free_ports(3)
    return (
        f"base: {parent}\nname: {name}\nlimits: {{max_seq_len: 512, max_num_tokens: 512}}\n"
        f"calibration: {{samples: 2, tokens_per_sample: 64}}\n"
        f"serve: {{http_port: {http}, grpc_port: {grpc}, metrics_port: {metrics}, token_seconds: 5ms}}\n"
    )


def alive(pid: int) -> bool:
    """Whether a process still runs; a zombie that init has yet to reap does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
