"""An LLM-API document as text, from one release to another (pure)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trtllm_kit.errors import NotMoved
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.lint.report import Located, located
from trtllm_kit.migrate.release.change import How, Row
from trtllm_kit.migrate.release.moves import move, problems
from trtllm_kit.migrate.release.yaml_comments import lost_comments
from trtllm_kit.migrate.release.yaml_edit import edited
from trtllm_kit.yaml_lines import Yaml, YamlError, parse_yaml

OTHERS = frozenset({"triton_config", "logits_post_processors"})
"""Keys of Triton's llmapi model, which stand in the same document and are no release's of TensorRT-LLM."""
_PYTORCH = ("pytorch", None)
_MOST_LINES = 10


@dataclass(frozen=True)
class Rewritten:
    """What became of a text."""

    kind: str
    """What it is, in words."""
    before: str
    text: str
    rows: tuple[Row, ...]
    problems: tuple[Located, ...] = ()
    """What the release that it is for has against it."""
    notes: tuple[str, ...] = ()
    unresolved: tuple[Located, ...] = ()
    """What the other release has against the result."""
    unread: tuple[str, ...] = ()
    """What may be for a release and was not read; each stands in ``notes`` too."""

    @property
    def changed(self) -> bool:
        """Whether the text is another one."""
        return self.text != self.before

    @property
    def was_refused(self) -> bool:
        """Whether the release that it is for does not take it as it was."""
        return any(one.finding.severity is Severity.ERROR for one in self.problems)

    @property
    def is_refused(self) -> bool:
        """Whether the other release does not take the result."""
        return any(one.finding.severity is Severity.ERROR for one in self.unresolved)

    @property
    def lost(self) -> tuple[Row, ...]:
        """The rows of what has no place in the other release."""
        return tuple(row for row in self.rows if row.how is How.LOST)


def rewritten(raw: bytes, file: str, source: str, target: str, *, keep_behaviour: bool = True) -> Rewritten:
    """Return a document of release ``source`` as one of ``target``; rows carry the line of the key they are about.

    Raises ``NotMoved`` for a text that is no YAML mapping, or one for another backend than the tables know.
    """
    read = _read(raw, file)
    text = raw.decode("utf-8-sig")
    given = {key: value for key, value in read.data.items() if key not in OTHERS}
    _of_the_pytorch_backend(given, file, source)
    made = move(given, source, target, keep_behaviour=keep_behaviour)
    moves = {row.key: row.to for row in made.rows if row.to and row.key != row.to}
    others = {key: value for key, value in read.data.items() if key in OTHERS}
    after = edited(text, _in_order(read.data, made.document, others), moves)
    notes = ["anchors or flow style: written anew"] if after.anew else []
    gone = lost_comments(text, after.text) if after.text != text else []
    if gone:
        notes.append(f"the comments of line{'s' * (len(gone) > 1)} {_shown(gone)} do not come along")
    rows = tuple(replace(row, line=_line(read, row.key)) for row in made.rows)
    found = tuple(located((*problems(given, source), *_twice(read)), file, read.places))
    left = tuple(located(problems(made.document, target), file, read.places))
    return Rewritten("LLM-API YAML", text, after.text, rows, found, tuple(notes), left)


def _shown(lines: list[int]) -> str:
    return ", ".join(map(str, lines[:_MOST_LINES])) + (" ..." if len(lines) > _MOST_LINES else "")


def _read(raw: bytes, file: str) -> Yaml:
    try:
        return parse_yaml(raw)
    except YamlError as error:
        raise NotMoved(
            f"{file} cannot be read as an LLM-API document",
            why=str(error),
            hint=f"mend line {error.line}, and run the same command again",
        ) from None


def _of_the_pytorch_backend(given: dict[str, Any], file: str, source: str) -> None:
    """Refuse a document for a backend whose keys the tables do not hold; before 1.0 they are one document's."""
    from trtllm_kit.upstream.llm_api_inside import is_early

    backend = given.get("backend")
    if backend in _PYTORCH or is_early(source):
        return
    engines = backend in ("tensorrt", "trt")
    raise NotMoved(
        f"{file} is a document for backend {backend}",
        why=f"in {source} that backend has keys of its own; what is known across releases is the PyTorch backend's",
        hint="trtkit migrate engine, for what builds or serves an engine" if engines else "backend: pytorch",
    )


def _in_order(given: dict[str, Any], made: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the new document with the keys of others where they stood."""
    if not others:
        return made
    kept = {key: others.get(key, made.get(key)) for key in given if key in others or key in made}
    return {**kept, **{key: value for key, value in made.items() if key not in kept}}


def _line(read: Yaml, key: str) -> int:
    return read.places.get(key, 0)


def _twice(read: Yaml) -> list[Finding]:
    """Return what is said of keys that stand twice, as ``trtkit lint`` says it."""
    from trtllm_kit.lint.documents import twice

    return [twice(*one) for one in read.twice]
