"""Takes the words that a program is given apart into its options, as the program itself does (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trtllm_kit.light import dataclass
from trtllm_kit.migrate.found import HIDDEN, Reader, Setting, Unread, Where
from trtllm_kit.shell.values import Argument
from trtllm_kit.spec.system_text import looks_secret
from trtllm_kit.upstream.program_options import BUILD, Option, near_option, options_of

_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
_MOST_SHOWN = 4_000
_ASSIGNED = re.compile(r"(?P<before>(?P<name>\w+)=|--(?P<option>[\w-]+) )(?P<value>(?!\$|-)\S+)")
Said = Setting | Unread


@dataclass(frozen=True)
class Given:
    """One option with its words, or a word that belongs to none."""

    words: tuple[Argument, ...]
    """As they stand, the option's own first."""
    name: str = ""
    """As it is written, without dashes and with ``_``; empty for a word by itself."""
    value: object = None
    why: str = ""
    """The reason for which it cannot be read."""

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.words[0].line

    @property
    def text(self) -> str:
        """The words as they are written."""
        return " ".join(one.text for one in self.words)


def read_options(
    reader: Reader, program: str, words: Sequence[Argument], file: str, version: str = ""
) -> Iterator[Said]:
    """Yield a setting for each option of a program, and what is not read for every other word."""
    for one in given(program, words, version):
        yield said_of(one, reader, file) if one.name or one.why else stray(one, program, file)


def said_of(one: Given, reader: Reader, file: str, model: str = "") -> Said:
    """Return an option as a setting, or as what cannot be read."""
    where = Where(file, one.line)
    return unread(where, one.text, one.why) if one.why else Setting(reader, one.name, one.value, where, model)


def stray(one: Given, program: str, file: str) -> Unread:
    """Return a word that no option takes."""
    return unread(Where(file, one.line), one.text, f"no option of {program} takes it")


def _open(match: re.Match[str]) -> str:
    """Return words that give a name a value, without the value of a secret."""
    name = (match["name"] or match["option"]).replace("-", "_")
    return f"{match['before']}{HIDDEN}" if looks_secret(name, match["value"]) else match[0]


def unread(where: Where, text: str, why: str) -> Unread:
    """Return what cannot be read, cut to a readable length and without the secrets in it."""
    plain = _ASSIGNED.sub(_open, " ".join(text.replace("\\\n", " ").split()))
    return Unread(where, plain if len(plain) <= _MOST_SHOWN else f"{plain[:_MOST_SHOWN]}...", why)


def given(program: str, words: Sequence[Argument], version: str = "", *, to_first: bool = False) -> list[Given]:
    """Return what a program is given, in order; each word is in exactly one of them.

    With ``to_first`` what stands from the first word on that belongs to no option is left out.
    """
    known, at = options_of(program, version), 0
    found: list[Given] = []
    while at < len(words):
        one = words[at]
        if not _is_option(one):
            if to_first:
                return found
            found.append(Given((one,), why=one.why))
            at += 1
            continue
        taken = _taken(program, known.get(_name(one)) or _shortened(program, one, dict(known)), words[at:], dict(known))
        found += taken
        at += len(taken[-1].words)
    return found


def _name(one: Argument) -> str:
    return one.text.partition("=")[0]


def _is_option(one: Argument) -> bool:
    return one.text.startswith("-") and len(one.text) > 1 and not _NEGATIVE.fullmatch(one.text)


def _shortened(program: str, one: Argument, known: dict[str, Option]) -> Option | None:
    """Return the option of which a word is the only possible beginning: ``argparse`` takes that, and all are known."""
    name = _name(one)
    if program != BUILD or not name.startswith("--") or len(name) < len("--ab"):
        return None
    found = {option.flag: option for spelling, option in known.items() if spelling.startswith(name)}
    return next(iter(found.values())) if len(found) == 1 else None


def _taken(program: str, option: Option | None, words: Sequence[Argument], known: dict[str, Option]) -> list[Given]:
    """Return the option that the first of the words begins; several for short ones that are written as one word."""
    first = words[0]
    name, equals, inline = first.text.partition("=")
    if option is None:
        return _together(first, known) or [_unknown(program, words)]
    if first.why and not equals:
        return [Given((first,), why=first.why)]
    shown = _shown(program, name, option)
    if option.takes == "flag":
        refused = f"{name} takes no value" if equals and program != "docker run" else ""
        return [Given((first,), shown, value=inline != "false", why=first.why or refused)]
    if equals:
        return [_valued(option, shown, (first,), (Argument(inline, first.line, first.why),))]
    return [_followed(option, shown, words)]


def _followed(option: Option, shown: str, words: Sequence[Argument]) -> Given:
    """Return an option whose values are the words behind it."""
    most = {"pair": 2, "words": len(words)}.get(option.takes, 1)
    values: list[Argument] = []
    for word in words[1:]:
        if len(values) == most or _is_option(word):
            break
        values.append(word)
    if option.takes == "maybe" and not values:
        return Given(tuple(words[:1]), shown, value=True)
    if len(values) < (2 if option.takes == "pair" else 1):
        return Given((words[0], *values), shown, why=f"the value of {words[0].text} is missing")
    return _valued(option, shown, (words[0], *values), tuple(values))


def _shown(program: str, name: str, option: Option) -> str:
    """Return the name of a setting: a long option as it is written, a short one by its long name but for mpirun's."""
    spelt = name if (name.startswith("--") and program != "docker run") or program == "mpirun" else option.flag
    if program == BUILD and spelt != option.flag and option.flag.startswith(spelt):
        spelt = option.flag
    return spelt.lstrip("-").replace("-", "_")


def _together(first: Argument, known: dict[str, Option]) -> list[Given]:
    """Read ``-it`` and ``-p8000:8000``: short options without a space between."""
    letters = first.text[1:]
    if first.text.startswith("--") or first.why or f"-{letters[:1]}" not in known:
        return []
    option = known[f"-{letters[0]}"]
    if option.takes != "flag":
        value = Argument(letters[1:].removeprefix("="), first.line)
        return [_valued(option, _shown("", f"-{letters[0]}", option), (first,), (value,))]
    if not all(f"-{letter}" in known and known[f"-{letter}"].takes == "flag" for letter in letters):
        return []
    names = [_shown("", f"-{letter}", known[f"-{letter}"]) for letter in letters]
    return [Given((first,), name, value=True) for name in names]


def _valued(option: Option, name: str, words: tuple[Argument, ...], values: tuple[Argument, ...]) -> Given:
    """Return an option with its value as the type that it takes."""
    why = next((one.why for one in values if one.why), "")
    if not why and any("\n" in one.text.replace("\\\n", "") for one in values):
        why = "its quotes run over several lines"
    texts = [one.text.replace("\\\n", "") for one in values]
    if why:
        return Given(words, name, why=why)
    if option.takes == "words":
        return Given(words, name, texts)
    if option.takes in ("whole", "number"):
        number = _number(texts[0], whole=option.takes == "whole")
        wanted = "a whole number" if option.takes == "whole" else "a number"
        return Given(words, name, number, why="" if number is not None else f"it takes {wanted}")
    return Given(words, name, " ".join(texts))


def _number(text: str, *, whole: bool) -> int | float | None:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return None


def _unknown(program: str, words: Sequence[Argument]) -> Given:
    """Return an option that no table has, with the words up to the next one."""
    own = [words[0]]
    for word in words[1:]:
        if _is_option(word):
            break
        own.append(word)
    name = _name(words[0])
    near = near_option(program, name)
    if words[0].why:
        return Given((words[0],), why=words[0].why)
    known = (
        f"{program} is not known to take {name}" if options_of(program) else f"the options of {program} are not known"
    )
    return Given(tuple(own), why=f"{known}; {near} is near" if near else known)
