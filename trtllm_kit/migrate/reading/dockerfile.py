"""Reads what a Dockerfile says of a build or a server, in its order (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.migrate.found import Reader, Setting, Where
from trtllm_kit.migrate.reading.named import Named, releases_in
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.migrate.reading.program_settings import environment, is_set_for_the_server
from trtllm_kit.migrate.reading.programs import Text, mentions, read_words
from trtllm_kit.migrate.reading.scripts import Said, Shell, read_shell
from trtllm_kit.shell.dockerfile import Copied, Image, NoInstruction, Script, Step, Variable, Words, steps
from trtllm_kit.shell.values import Argument, Scope


def read_dockerfile(text: str, shell: Shell) -> Iterator[Said]:
    """Yield what a Dockerfile says; variables of its containers last, since what it asks for is known then."""
    used: set[str] = set()
    environments: list[Setting] = []
    for step in steps(text, used):
        if not isinstance(step, Variable):
            yield from _of_step(step, shell, used)
            continue
        said = environment(Argument(f"{step.name}={step.value.text}", step.line, step.value.why), shell.file)
        if isinstance(said, Setting):
            environments.append(said)
        else:
            yield said
    yield from (one for one in environments if is_set_for_the_server(one.name, str(one.value), used))


def _of_step(step: Step, shell: Shell, used: set[str]) -> Iterator[Said]:
    if isinstance(step, Script):
        yield from read_shell(step.text, shell, step.scope, step.line)
    elif isinstance(step, Words):
        yield from _started(step, shell)
    elif isinstance(step, Copied):
        if mentions(step.text):
            yield from read_shell(step.text, shell, Scope(used=used), step.line)
    elif isinstance(step, NoInstruction):
        yield unread(Where(shell.file, step.line), step.text, "no instruction of a Dockerfile")
    elif isinstance(step, Image):
        yield from _image(step, Where(shell.file, step.line))


def _image(step: Image, where: Where) -> Iterator[Said]:
    if step.name.why:
        yield unread(where, step.name.text, step.name.why)
        return
    yield Setting(Reader.CONTAINER, "image", step.name.text, where)
    yield from (Named(name, where) for name in releases_in(step.name.text))


def _started(step: Words, shell: Shell) -> Iterator[Said]:
    for said in read_words(step.words, step.scope, shell.file, shell.version):
        if isinstance(said, Text):
            yield from read_shell(said.text, shell, said.scope, said.line)
        else:
            yield said
