"""Reads the words of a script as commands, loops, branches and functions; what is out of place is passed (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trtllm_kit.light import dataclass
from trtllm_kit.shell.words import Broken, Here, Mark, Token, Word, tokens

_MOST_LEVELS = 40
_ENDS = frozenset({"\n", ";", "&", "&&", "||", "|", "|&"})
_LIST_ENDS = frozenset({"\n", ";", "&"})
"""What ends all that ``&`` sends to the background."""
_REDIRECTIONS = frozenset({"<", ">", ">>", ">|", "&>", "&>>", ">&", "<&", "<<<"})
_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


@dataclass(frozen=True)
class Command:
    """One command as it is written."""

    words: tuple[Word, ...]
    line: int
    heres: tuple[Here, ...] = ()
    targets: tuple[Word, ...] = ()
    """Files that its output goes to or its input comes from."""
    broken: tuple[Broken, ...] = ()
    background: bool = False
    """Whether the script goes on while it runs (``&``)."""


@dataclass(frozen=True)
class Loop:
    """``for``, ``while`` and ``until``."""

    line: int
    body: tuple[Node, ...]
    name: str = ""
    """The variable of ``for``; empty for the others."""
    words: tuple[Word, ...] = ()
    counted: str = ""
    """What stands in the brackets of ``for ((...))``."""
    condition: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Branches:
    """``if`` and ``case``: one of the arms runs, or none where there is no ``else``."""

    line: int
    arms: tuple[tuple[Node, ...], ...]
    conditions: tuple[tuple[Node, ...], ...] = ()
    complete: bool = False


@dataclass(frozen=True)
class Function:
    """A function that the script defines."""

    name: str
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Group:
    """Commands in brackets; those in round ones change nothing outside."""

    body: tuple[Node, ...]
    apart: bool


Node = Command | Loop | Branches | Function | Group


def script(text: str, line: int = 1) -> tuple[Node, ...]:
    """Return the commands of a script whose first line has the given number."""
    return _Parser(tokens(text, line)).all()


def _in_background(node: Node) -> Node:
    """Return a node whose commands the script does not wait for."""
    if isinstance(node, Command):
        return replace(node, background=True)
    if isinstance(node, Branches):
        return replace(node, arms=tuple(tuple(map(_in_background, arm)) for arm in node.arms))
    return node if isinstance(node, Function) else replace(node, body=tuple(map(_in_background, node.body)))


class _Parser:
    """Walks over the tokens once; every token comes into a node, or is a mark between two."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens, self._at, self._level = found, 0, 0
        self._aside: list[Node] = []

    def all(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self._at < len(self._tokens):
            found += self._until(frozenset())
            if self._is_mark(")"):
                found.append(Command((), self._line(), broken=(self._torn(),)))
            elif self._at < len(self._tokens):  # a word like `fi` that nothing opened
                self._at += 1
        return tuple(found)

    def _torn(self) -> Broken:
        """Take the rest of a line in which a bracket stands where no shell takes one."""
        line, text = self._line(), list[str]()
        while (token := self._peek()) is not None and not self._is_mark("\n"):
            text.append(token.written if isinstance(token, Word) else token.text)
            self._at += 1
        return Broken(line, " ".join(text), "a bracket where none can be")

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _is_mark(self, *marks: str) -> bool:
        token = self._peek()
        return isinstance(token, Mark) and token.text in marks

    def _plain(self) -> str:
        token = self._peek()
        return token.plain if isinstance(token, Word) else ""

    def _skip(self, *marks: str) -> None:
        while self._is_mark(*marks):
            self._at += 1

    def _until(self, ends: frozenset[str]) -> tuple[Node, ...]:
        """Read nodes up to one of the words or marks that end them, which is left."""
        found: list[Node] = []
        begin = 0
        while (token := self._peek()) is not None:
            text = token.text if isinstance(token, Mark) else self._plain()
            if text in ends or text in (")", ";;", ";&", ";;&") or (text in _CLOSING and isinstance(token, Word)):
                break
            if isinstance(token, Mark) and text in _ENDS:
                self._at += 1
                if text == "&":
                    found[begin:] = map(_in_background, found[begin:])
                begin = len(found) if text in _LIST_ENDS else begin
                continue
            found += self._node()
        return tuple(found)

    def _node(self) -> list[Node]:
        """Read one command, or what begins with a word of the shell's own."""
        if self._level >= _MOST_LEVELS:
            return [self._command()]
        self._level += 1
        try:
            return self._compound()
        finally:
            self._level -= 1

    def _compound(self) -> list[Node]:
        word, token = self._plain(), self._peek()
        known: dict[str, Callable[[], Node]] = {
            **dict.fromkeys(("for", "select"), self._for),
            **dict.fromkeys(("while", "until"), self._while),
            "if": self._if,
            "case": self._case,
        }
        if word in known:
            return [known[word]()]
        if word in ("!", "time", "coproc"):
            self._at += 1
            return []
        if word == "{" or self._is_mark("("):
            self._at += 1
            body = self._until(frozenset({"}", ")"}))
            self._at += 1
            return [Group(body, apart=word != "{"), *self._rest()]
        if word == "function" or (isinstance(token, Word) and self._opens_function()):
            return self._function()
        return [self._command(), *self._beside()]

    def _beside(self) -> list[Node]:
        """Return the commands of ``<(...)`` and ``>(...)`` in the command before."""
        found, self._aside = self._aside, []
        return found

    def _rest(self) -> list[Node]:
        """Read what follows a closing bracket: where the output goes, or the text that is handed in."""
        token = self._peek()
        after = isinstance(token, Here) or (isinstance(token, Mark) and token.text in _REDIRECTIONS)
        return [self._command()] if after else []

    def _opens_function(self) -> bool:
        marks = self._tokens[self._at + 1 : self._at + 3]
        return [one.text for one in marks if isinstance(one, Mark)] == ["(", ")"]

    def _function(self) -> list[Node]:
        if self._plain() == "function":
            self._at += 1
        token = self._peek()
        if not isinstance(token, Word):
            return []
        self._at += 1
        self._skip("(", ")", "\n")
        nodes = self._node() if self._plain() == "{" or self._is_mark("(") else []
        body = nodes[0].body if nodes and isinstance(nodes[0], Group) else ()
        return [Function(token.written, body, token.line), *nodes[1:]]

    def _for(self) -> Loop:
        line, counted, name, words = self._line(), "", "", list[Word]()
        self._at += 1
        token = self._peek()
        if isinstance(token, Mark) and token.text.startswith("(("):
            counted = token.text[2:-2]
            name = counted.partition("=")[0].strip()
            self._at += 1
        elif isinstance(token, Word):
            name = token.written
            self._at += 1
        self._skip("\n")
        if self._plain() == "in":
            self._at += 1
            while isinstance(word := self._peek(), Word):
                words.append(word)
                self._at += 1
        return Loop(line, self._body(), name, tuple(words), counted)

    def _while(self) -> Loop:
        line = self._line()
        self._at += 1
        condition = self._until(frozenset({"do"}))
        return Loop(line, self._body(), condition=condition)

    def _body(self) -> tuple[Node, ...]:
        self._skip("\n", ";")
        if self._plain() == "do":
            self._at += 1
        body = self._until(frozenset({"done"}))
        if self._plain() == "done":
            self._at += 1
        return body

    def _if(self) -> Branches:
        line, arms, conditions, complete = self._line(), list[tuple[Node, ...]](), list[tuple[Node, ...]](), False
        while self._plain() in ("if", "elif", "else", "then"):
            word = self._plain()
            self._at += 1
            if word in ("if", "elif"):
                conditions.append(self._until(frozenset({"then"})))
                continue
            complete = complete or word == "else"
            arms.append(self._until(frozenset({"elif", "else", "fi"})))
        if self._plain() == "fi":
            self._at += 1
        return Branches(line, tuple(arms), tuple(conditions), complete)

    def _case(self) -> Branches:
        line, arms = self._line(), list[tuple[Node, ...]]()
        while self._peek() is not None and self._plain() != "in" and not self._is_mark("\n", ";"):
            self._at += 1
        complete = False
        if self._plain() == "in":
            self._at += 1
        while self._peek() is not None and self._plain() != "esac":
            self._skip("\n", ";", ";;", ";&", ";;&", "(")
            complete = complete or self._plain() == "*"
            begin = self._at
            while self._peek() is not None and not self._is_mark(")", "\n") and self._plain() != "esac":
                self._at += 1
            self._skip(")")
            arms.append(self._until(frozenset({"esac"})))
            if self._at == begin:
                break
        if self._plain() == "esac":
            self._at += 1
        return Branches(line, tuple(arms), (), complete)

    def _line(self) -> int:
        token = self._peek()
        return token.line if token is not None else 0

    def _command(self) -> Command:
        """Read words up to what ends a command."""
        line = self._line()
        words, heres, targets, broken = list[Word](), list[Here](), list[Word](), list[Broken]()
        while (token := self._peek()) is not None:
            if isinstance(token, Mark):
                if token.text == "(" and words:
                    broken.append(self._torn())
                if token.text not in _REDIRECTIONS:
                    break
                self._at += 1
                target = self._peek()
                if self._is_mark("(") and self._level < _MOST_LEVELS:
                    self._aside += self._node()
                elif isinstance(target, Word):
                    targets.append(target)
                    self._at += 1
                continue
            self._at += 1
            if isinstance(token, Word):
                words.append(token)
            elif isinstance(token, Here):
                heres.append(token)
            else:
                broken.append(token)
        if not (words or heres or targets or broken) and self._at < len(self._tokens):
            self._at += 1  # a mark that is out of place
        return Command(tuple(words), line, tuple(heres), tuple(targets), tuple(broken))
