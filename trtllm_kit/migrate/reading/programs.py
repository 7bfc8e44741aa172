"""Finds the programs of the engine backend in commands and reads what each is given (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.found import Reader, Setting, Unread, Where
from trtllm_kit.migrate.reading.named import Named, checked_out, releases_in, serves
from trtllm_kit.migrate.reading.options import Given, given, said_of, unread
from trtllm_kit.migrate.reading.program_settings import READERS, environment, program_settings
from trtllm_kit.shell.values import Argument, Scope
from trtllm_kit.shell.walk import SHELLS
from trtllm_kit.shell.within import SAYS, text_for_shell
from trtllm_kit.upstream.program_options import is_distinct

Words = Sequence[Argument]
_MODULES = {"tensorrt_llm.commands.build": "trtllm-build", "tensorrt_llm.commands.serve": "trtllm-serve"}
_OTHERS = frozenset({
    "trtllm-refit", "trtllm-prune", "trtllm-bench", "hf_ptq.py", "hf_lora_convert.py", "nemo_lora_convert.py",
})  # fmt: skip
"""Programs of the same road whose options nobody reads here."""
_MPI = frozenset({"mpirun", "mpiexec", "mpirun.real"})
_CONTAINERS = frozenset({"docker", "podman", "nvidia-docker"})
_HANDS_ON = frozenset({
    "docker", "podman", "kubectl", "sudo", "su", "ssh", "nohup", "timeout", "nice", "stdbuf", "env", "exec", "time",
    "tmux", "screen", "command", "setsid",
})  # fmt: skip
"""Programs whose own options say nothing of a server or a build."""
_PLACES = frozenset({"volume", "mount", "workdir", "user"})
_ALIKE = 0.88


@dataclass(frozen=True)
class Begun:
    """A program is called here: the options of its reader that follow, up to the next one, are of one command."""

    where: Where


Said = Setting | Unread | Named | Begun


@dataclass(frozen=True)
class Text:
    """Text that a shell is given: a script within the script."""

    text: str
    line: int
    scope: Scope


def read_words(words: Words, scope: Scope, file: str, version: str) -> Iterator[Said | Text]:
    """Yield what a command says, and the text of a shell that it starts."""
    yield from (Named(name, Where(file, one.line)) for one in words if not one.why for name in releases_in(one.text))
    names = [_name(one) for one in words]
    yield from (
        Named(name, Where(file, words[0].line)) for name in checked_out(names[:2] + [one.text for one in words[2:]])
    )
    if not names or names[0] in SAYS:
        if {"then", "do"} & {*names} and any(map(is_program, names)):
            whole = " ".join(one.text for one in words)
            yield unread(Where(file, words[0].line), whole, "then and do stand behind a semicolon or on their own line")
        return
    if words[0].text.startswith("-"):
        whole = " ".join(one.text for one in words)
        yield unread(Where(file, words[0].line), whole, "it begins with an option: the line before does not go on")
        return
    at = _first(names, words)
    if at is None:
        yield from _elsewhere(names, words, scope, file)
        return
    yield from _before(words[:at], file)
    name, rest = names[at], words[at + 1 :]
    if name in _CONTAINERS:
        yield from _container(rest[1:], scope, file, version)
    elif name in _MPI:
        yield from _mpi(rest, scope, file, version)
    elif name in SHELLS:
        yield from _shell(words[at:], scope)
    elif name in _OTHERS:
        whole = " ".join(one.text for one in words[at:])
        yield unread(Where(file, words[at].line), whole, f"the options of {name} are read by no part of trtkit")
    else:
        yield Begun(Where(file, words[at].line))
        yield from program_settings(_MODULES.get(words[at].text, name), rest, file, version)


def _name(one: Argument) -> str:
    """Return the last part of a path, where nothing in it is a variable; that of a folder is no program's."""
    name = PurePosixPath(one.text).name
    if (one.why and "$" in name) or "`" in name:
        return ""
    return "" if name == "tritonserver" and one.text not in (name, f"./{name}") and "/bin/" not in one.text else name


def is_program(name: str) -> bool:
    """Whether the last part of a path is a program that is read here."""
    return name in READERS or name in _OTHERS


def mentions(text: str) -> bool:
    """Whether a text names one of the programs."""
    return any(name in text for name in (*READERS, *_MODULES))


def _first(names: list[str], words: Words) -> int | None:
    """Return the place of the first word that is read here; None where there is none."""
    for at, name in enumerate(names):
        after = names[at + 1] if at + 1 < len(names) else ""
        if is_program(name) or name in _MPI or words[at].text in _MODULES:
            return at
        if (name in _CONTAINERS and after == "run") or (name in SHELLS and text_for_shell(words[at:]) is not None):
            return at
    return None


def _elsewhere(names: list[str], words: Words, scope: Scope, file: str) -> Iterator[Said | Text]:
    """Yield the text that another machine is given (``ssh host 'trtllm-build ...'``), or a name that looks like one."""
    if words[0].why and any(one.text.startswith("--") for one in words[1:]):
        whole = " ".join(one.text for one in words)
        yield unread(Where(file, words[0].line), whole, f"its program cannot be read: {words[0].why}")
        return
    texts = [one for one in words[1:] if not one.why and " " in one.text and mentions(one.text)]
    if texts and not names[0].startswith("python"):
        yield from (Text(one.text, one.line, Scope(used=scope.used)) for one in texts)
    else:
        yield from _alike(names, words, file)


def _alike(names: list[str], words: Words, file: str) -> Iterator[Said]:
    """Yield a command whose program is spelt almost like one of those."""
    for name, one in zip(names[:3], words[:3], strict=False):
        close = difflib.get_close_matches(name, READERS, n=1, cutoff=_ALIKE) if len(name) > len("quantize") else []
        if close:
            whole = " ".join(each.text for each in words)
            yield unread(Where(file, one.line), whole, f"{name} is no program that is known; {close[0]} is near")
            return
    for one in words:
        if one.why and "${ " in one.text and mentions(one.text):
            yield unread(Where(file, one.line), one.text, one.why)
    strays = [one for one in words if is_distinct(one.text.partition("=")[0])]
    if strays:
        whole = " ".join(one.text for one in words)
        name = next((name for name in names if name and not name.startswith("python")), words[0].text)
        why = f"{name} is no program that is known, and {strays[0].text} is an option of one that is"
        yield unread(Where(file, strays[0].line), whole, why)


def _before(words: Words, file: str) -> Iterator[Said]:
    """Yield what stands before a program: variables of ``env``, and options that nobody reads."""
    names = [PurePosixPath(one.text).name for one in words]
    options = [one for one in words if one.text.startswith("-")]
    if options and not names[0].startswith("python") and names[0] not in _HANDS_ON:
        text = " ".join(one.text for one in words)
        yield unread(Where(file, options[0].line), text, f"the options of {names[0]} are read by no part of trtkit")
    yield from (unread(Where(file, one.line), one.text, one.why) for one in words if one.why)
    if "env" in names:
        yield from (environment(one, file) for one in words if "=" in one.text and not one.text.startswith("-"))


def _container(words: Words, scope: Scope, file: str, version: str) -> Iterator[Said | Text]:
    """Yield the options of ``docker run``, its image, and what the command in it says."""
    options, rest, named = _own_options("docker run", words)
    inner = Scope(used=scope.used)
    said: list[Said | Text] = []
    for one in options:
        said += _option_of_container(one, file, inner)
    if rest and not named:
        image = rest[0]
        where = Where(file, image.line)
        shown: Said = Setting(Reader.CONTAINER, "image", image.text, where)
        said.append(unread(where, image.text, image.why) if image.why else shown)
    command = list(read_words(rest if named else rest[1:], inner, file, version))
    if command or (rest and serves(rest[0].text)):
        yield from said
    yield from command


def _own_options(program: str, words: Words) -> tuple[list[Given], Words, bool]:
    """Return the options of what starts another program, the words behind them, and whether these begin with it.

    An option that is not known takes all up to the program that is started: nobody knows how many words are its own.
    """
    first = _first([_name(one) for one in words], words)
    end = len(words) if first is None else first
    options = given(program, words[:end], to_first=True)
    used = len({id(word) for option in options for word in option.words})
    return options, words[used:], used == end and first is not None


def _option_of_container(one: Given, file: str, inner: Scope) -> Iterator[Said]:
    if one.name == "env" and not one.why:
        name, equals, value = str(one.value).partition("=")
        if equals:
            inner.values[name] = (Argument(value, one.line),)
            inner.exported.add(name)
        yield environment(Argument(str(one.value), one.line), file)
    elif one.name in _PLACES and "\n" not in one.text:  # as it stands: what the host calls its folders is no setting
        yield Setting(Reader.CONTAINER, one.name, one.words[-1].text, Where(file, one.line))
    else:
        yield said_of(one, Reader.CONTAINER, file)


def _mpi(words: Words, scope: Scope, file: str, version: str) -> Iterator[Said | Text]:
    """Yield each part of ``mpirun ... : ...``: its own options and those of what it starts."""
    part: list[Argument] = []
    for one in (*words, Argument(":", 0)):
        if one.text != ":":
            part.append(one)
            continue
        options, rest, _ = _own_options("mpirun", part)
        for option in options:
            if option.name == "x" and not option.why:
                yield environment(Argument(str(option.value), option.line), file)
            else:
                yield said_of(option, Reader.MPI, file)
        if rest:
            yield from read_words(rest, scope, file, version)
        part = []


def _shell(words: Words, scope: Scope) -> Iterator[Said | Text]:
    """Yield the text of ``bash -c text``."""
    found = text_for_shell(words)
    if found is not None:
        text = words[found[1]]
        yield Text(text.text, text.line, scope.child())
