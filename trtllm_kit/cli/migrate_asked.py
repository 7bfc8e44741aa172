"""What ``trtkit migrate compare`` was asked for: two deployments, the prompts, and what may differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.discover import streams
from trtllm_kit.bench.prompts import FileTokenizer
from trtllm_kit.bench.run import Server
from trtllm_kit.cli.bench_server import server_of
from trtllm_kit.errors import UsageError
from trtllm_kit.health.access import Access, NoSecret, authorization
from trtllm_kit.migrate.comparison.answers import Asked, Question
from trtllm_kit.migrate.comparison.compare import Rules
from trtllm_kit.migrate.comparison.difference import Near
from trtllm_kit.migrate.comparison.prompts import prompts_of
from trtllm_kit.units import parse_share


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of one deployment."""

    url: str
    api: str | None
    model: str | None
    bearer: str | None
    tokenizer: Path | None


def rules_of(allow: Sequence[str], different: int, slower: str | None) -> Rules:
    """Return what the operator lets pass; raises ``UsageError``."""
    unknown = [name for name in allow if name not in set(Near)]
    if unknown:
        raise UsageError(f"--allow {unknown[0]}", why=f"known are {', '.join(Near)}", hint="--allow trailing-blank")
    try:
        share = None if slower is None else parse_share(slower)
    except ValueError as error:
        raise UsageError(f"--slower-by {slower} is not understood", why=str(error), hint="--slower-by 10%") from None
    return Rules(frozenset(map(Near, allow)), different, share)


def asked_both(
    old: Given,
    new: Given,
    *,
    prompts: str,
    tokens: int,
    longest: int,
    users: int,
    header: Sequence[str] | None,
    ca: str | None,
    timeout: str,
    whole: bool,
    seed: int,
    told: Callable[[str], None],
) -> tuple[Question, Asked, Asked]:
    """Return the question and whom it is for, after a look at both; raises ``UsageError`` and ``RequestFailed``."""
    counting = {one.tokenizer: FileTokenizer(one.tokenizer) for one in (old, new) if one.tokenizer is not None}
    old_tokens, new_tokens = (None if one.tokenizer is None else counting[one.tokenizer] for one in (old, new))
    texts = prompts_of(prompts, longest, seed)
    servers = [
        _server(one, name, header, ca, timeout)
        for one, name in ((old, "old"), (new, "new"))
    ]  # fmt: skip
    pieces = not whole
    for name, server in zip(("old", "new"), servers, strict=True):
        if pieces and not _streams(server):
            told(f"the {name} deployment gives whole answers only: both are asked for those")
            pieces = False
    question = Question(texts, tokens, users, streams=pieces)
    return question, Asked("old", servers[0], old_tokens), Asked("new", servers[1], new_tokens)


def _server(given: Given, name: str, header: Sequence[str] | None, ca: str | None, timeout: str) -> Server:
    if given.api and given.api not in DIALECTS:
        raise UsageError(
            f"--api-{name} {given.api}", why=f"known are {', '.join(DIALECTS)}", hint=f"--api-{name} triton"
        )
    headers = [*(header or ()), *_bearer(given.bearer, name)]
    return server_of(
        given.url, api=given.api, model=given.model, header=headers, timeout=timeout, ca=ca, side=f"-{name}"
    )


def _bearer(path: str | None, name: str) -> list[str]:
    if path is None:
        return []
    try:
        said = authorization(Access(bearer_file=path), os.environ)
    except NoSecret as error:
        raise UsageError(f"--bearer-{name} {path}", why=str(error), hint="a file with the token alone") from None
    return [f"Authorization: {said}"]


def _streams(server: Server) -> bool:
    """Whether it answers in pieces, as far as it says so; over gRPC it is not asked, and is taken to."""
    return server.grpc or streams(server.address, server.api, server.model, dict(server.headers)) is not False
