"""Settings that one program is given: its options, and words with a meaning of their own (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from trtllm_kit.migrate.found import Reader, Setting, Unread, Where
from trtllm_kit.migrate.reading.options import given, read_options, said_of, stray, unread
from trtllm_kit.shell.values import Argument, not_set
from trtllm_kit.shell.words import Word, tokens
from trtllm_kit.upstream.environment import ranges_of

Said = Setting | Unread
Words = Sequence[Argument]
READERS = {
    "trtllm-build": Reader.BUILD,
    "convert_checkpoint.py": Reader.CONVERT,
    "quantize.py": Reader.QUANTIZE,
    "fill_template.py": Reader.FILL,
    "launch_triton_server.py": Reader.LAUNCHER,
    "tritonserver": Reader.TRITON,
    "trtllm-serve": Reader.SERVE,
}
"""Who reads the options of a program, by its name."""
_HIDDEN = "\x00"
_SUBCOMMANDS = ("serve", "disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")


def environment(one: Argument, file: str) -> Said:
    """Return ``NAME=value`` as the setting of a variable; a name alone is handed on from outside.

    A value that only adds to what the machine has, ``PATH=/x:$PATH``, is one as it is written.
    """
    name, equals, value = one.text.partition("=")
    where = Where(file, one.line)
    if one.why and one.why != not_set(name):
        return unread(where, one.text, one.why)
    return Setting(Reader.ENVIRONMENT, name, value if equals else None, where)


def is_set_for_the_server(name: str, value: str, used: Collection[str]) -> bool:
    """Whether a variable is a setting by itself: one that the file's own words use is none, unless a table has it."""
    inner = name in used and re.search(rf"\$\{{?{re.escape(name)}\b", value) is None
    return not inner or bool(ranges_of(name))


def program_settings(name: str, words: Words, file: str, version: str) -> Iterator[Said]:
    """Yield what a program of a known name is given."""
    if name == "fill_template.py":
        yield from _fill(words, file)
    elif name == "trtllm-serve":
        yield from _serve(words, file, version)
    else:
        yield from read_options(READERS[name], name, words, file, version)


def _serve(words: Words, file: str, version: str) -> Iterator[Said]:
    """Yield the options of ``trtllm-serve``; the first word by itself is a sub-command or the model."""
    kind = words[0].text if words and words[0].text in _SUBCOMMANDS else "serve"
    program, prefix = ("trtllm-serve", "") if kind == "serve" else (f"trtllm-serve {kind}", f"{kind}.")
    rest = words[1:] if words and words[0].text == kind else words
    model = False
    for one in given(program, rest, version):
        where = Where(file, one.line)
        if one.why or one.name:
            said = said_of(one, Reader.SERVE, file)
            yield Setting(said.reader, prefix + said.name, said.value, where) if isinstance(said, Setting) else said
        elif not model:
            model = True
            yield Setting(Reader.SERVE, f"{prefix}model", one.text, where)
        else:
            yield stray(one, program, file)


def _fill(words: Words, file: str) -> Iterator[Said]:
    """Yield what ``fill_template.py`` puts into a template: ``name:value`` with commas between."""
    target = ""
    alone = 0
    for one in given("fill_template.py", words):
        where = Where(file, one.line)
        if one.why and (one.name or not alone):
            yield unread(where, one.text, one.why)
            alone += not one.name
        elif one.name:
            yield Setting(Reader.FILL, one.name, one.value, where)
        elif alone == 0:
            target, alone = PurePosixPath(one.text).parent.name, 1
            yield Setting(Reader.FILL, "file", one.text, where, target)
        elif alone == 1:
            alone = 2
            yield from _pairs(one.words[0], where, target)
        else:
            yield stray(one, "fill_template.py", file)


def _pairs(one: Argument, where: Where, model: str) -> Iterator[Said]:
    text, hidden = _hidden(one.text) if one.why else (one.text, [])
    for pair in _split(text, ","):
        parts = _split(pair, ":")
        shown = _shown(pair, hidden)
        if len(parts) < len(("name", "value")):
            yield unread(where, shown, "it is no name with a colon and a value")
        elif len(parts) > len(("name", "value")):
            yield unread(
                where, shown, "more than one colon: the program stops there, unless \\ stands before the second"
            )
        elif _HIDDEN in pair:
            yield unread(where, shown, one.why)
        else:
            yield Setting(Reader.FILL, parts[0].strip(), parts[1], where, model)


def _hidden(text: str) -> tuple[str, list[str]]:
    """Put a mark in the place of each part that a shell fills in, so that its commas and colons divide nothing."""
    found: list[str] = []
    kept = ""
    for word in tokens(f'"{text.replace(chr(34), "")}"'):
        for part in word.parts if isinstance(word, Word) else ():
            kept += part.text if part.kind == "text" else _HIDDEN
            found += [] if part.kind == "text" else [part.written]
    return kept, found


def _shown(text: str, hidden: list[str]) -> str:
    """Put the parts back."""
    return re.sub(_HIDDEN, lambda _: hidden.pop(0) if hidden else "", text)


def _split(text: str, mark: str) -> list[str]:
    """Split at a mark that no backslash stands before; the backslash goes when the last mark was looked for."""
    found, escaped = [""], False
    for letter in text:
        if escaped:
            found[-1] += letter if mark == ":" else f"\\{letter}"
        elif letter == mark:
            found.append("")
        elif letter != "\\":
            found[-1] += letter
        escaped = letter == "\\" and not escaped
    return found
