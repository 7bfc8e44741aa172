"""What a release takes as it stands and does something else with: defaults, and who wins of document and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.errors import CannotDo
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.read import read_bytes
from trtllm_kit.lint.report import Located
from trtllm_kit.migrate.release.change import UNSAID, Row
from trtllm_kit.migrate.release.serve_command import as_yaml, document_of
from trtllm_kit.migrate.release.serve_precedence import Said, other_winner
from trtllm_kit.migrate.release.serve_unread import left_documents
from trtllm_kit.migrate.release.serve_words import Given, Script, commands_of
from trtllm_kit.migrate.release.yaml_file import rewritten
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.precedence import key_of_option
from trtllm_kit.upstream.serve_options import option_anywhere
from trtllm_kit.yaml_lines import YamlError, parse_yaml

RULE = "PF51"


def document_beside(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the document that a command names by a path from the script's folder; None where none can be read."""
    try:
        return parse_yaml(read_bytes(folder / name)).data
    except (YamlError, CannotDo):
        return None


def changed_in_document(path: Path, source: str, target: str) -> Iterator[Located]:
    """Yield PF51 for each choice that an LLM-API document leaves to the release."""
    yield from _defaults(read_bytes(path), path.name, (source, target), None)


def changed_in_script(path: Path, source: str, target: str) -> Iterator[Located]:
    """Yield PF51 for the documents that a script writes, and for options that a document sets too."""
    script = Script(read_bytes(path).decode("utf-8", errors="replace"))
    documents = list(script.documents())
    left, own = left_documents(documents), dict[str, Mapping[str, Any] | None]()
    for here in documents:
        own[here.file] = None if here.line in left else parse_yaml(here.text.encode()).data
        if here.line not in left:
            yield from _defaults(here.text.encode(), path.name, (source, target), here.line)
    for call in commands_of(script):
        document = document_of(call, own, lambda name: document_beside(path.parent, name))
        if document is not None:
            yield from _winners(call, document, path.name, (source, target))


def _defaults(raw: bytes, file: str, between: tuple[str, str], line: int | None) -> Iterator[Located]:
    for row in rewritten(raw, file, *between).rows:
        if row.before == UNSAID:
            yield Located(_of_default(row, between[1]), file, line)


def _of_default(row: Row, target: str) -> Finding:
    doubt = "" if row.certainty == "read" else "; not confirmed for this release"
    way = f"write {row.to}: {_text(row.after)}" if row.to else f"look at {row.key}: {target} cannot be told to"
    return found(
        RULE, Severity.INFO, f"{target} does something else where {row.key} is not set.", f"{row.why}{doubt}", way
    )


def _winners(call: Given, document: Mapping[str, Any], file: str, between: tuple[str, str]) -> Iterator[Located]:
    source, target = between
    for option in call.options:
        known = option_anywhere(option.name, call.program)
        key = key_of_option(known.flag) if known is not None else None
        other = other_winner(Said(document, key, as_yaml(option.value)), source, target) if key else None
        if other is not None:
            before, after = other
            compared = (
                f"{source} goes by {before.by}: {_text(before.value)}; {target} by {after.by}: {_text(after.value)}"
            )
            message = f"{option.name} and the document both set {key}, and in {target} another one wins."
            finding = found(RULE, Severity.WARNING, message, compared, f"set {key} in one of both")
            yield Located(finding, file, option.line)


def _text(value: object) -> str:
    return "its default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
