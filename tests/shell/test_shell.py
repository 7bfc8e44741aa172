"""Reading shell text for a migration: words, values, and the way through a script."""

from __future__ import annotations

import pytest

from trtllm_kit.shell.arithmetic import arithmetic
from trtllm_kit.shell.values import Scope
from trtllm_kit.shell.walk import Called, Exported, walk
from trtllm_kit.shell.words import Broken, tokens

Read = list[tuple[int, list[str]]]


def commands(text: str) -> Read:
    """Return what a script starts; a word that cannot be read has a ? before it."""
    return [
        (event.line, [f"?{one.text}" if one.why else one.text for one in event.arguments])
        for event in walk(text, Scope())
        if isinstance(event, Called)
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a 'b  c' \"d e\" f\\ g h'i'\"j\"k", [(1, ["a", "b  c", "d e", "f g", "hijk"])]),
        ("a \\\n  b \\\n\n c", [(1, ["a", "b"]), (4, ["c"])]),
        ("a # b\nc#d", [(1, ["a"]), (2, ["c#d"])]),
        ("a 2>&1 >log b <in", [(1, ["a", "b"])]),
        ("a && b || c; d & e | f", [(1, [one]) for one in "abcdef"]),
        ('a $\'x\\ty\' "p\\"q\\$r\\z"', [(1, ["a", "x\ty", 'p"q$r\\z'])]),
        ("X=1\na $X \"$X\" '$X' ${X}y", [(2, ["a", "1", "1", "$X", "1y"])]),
        ("X='p q'\na $X \"$X\"", [(2, ["a", "p", "q", "p q"])]),
        ('X=\na $X b "$X"', [(2, ["a", "b", ""])]),
        ("a ${X:-1} ${Y:-$Z} ${W-}", [(1, ["a", "1", "?$Z"])]),
        ("X=2\na ${X:+yes} ${Y:+no}", [(2, ["a", "yes"])]),
        (': "${X:=5}"\na $X', [(1, [":", "5"]), (2, ["a", "5"])]),
        (
            "X=/m/llama.d/x.tar\na ${X##*/} ${X%/*} ${X%%.*} ${X#*.}",
            [(2, ["a", "x.tar", "/m/llama.d", "/m/llama", "d/x.tar"])],
        ),
        ("X=abc\na ${X/b/d} ${#X} ${X:1}", [(2, ["a", "?${X/b/d}", "?${#X}", "?${X:1}"])]),
        ("a {1..3} x{b,c}y {1..$N} {solo}", [(1, ["a", "1", "2", "3", "xby", "xcy", "?{1..$N}", "{solo}"])]),
        (
            "a $(seq 2 4) $(echo p q) `basename /x/y/` $(dirname /x/y)",
            [(1, w.split()) for w in ("seq 2 4", "echo p q", "basename /x/y/", "dirname /x/y", "a 2 3 4 p q y /x")],
        ),
        ('a $(date) "$(nproc)"', [(1, ["date"]), (1, ["nproc"]), (1, ["a", "?$(date)", "?$(nproc)"])]),
        ("exec > >(tee log)\na <(b c)", [(1, ["exec"]), (1, ["tee", "log"]), (2, ["a"]), (2, ["b", "c"])]),
        ('A=(x \'y z\')\nA+=(w)\na "${A[@]}" "pre${A[@]}"', [(3, ["a", "x", "y z", "w", "prex", "y z", "w"])]),
        ("A=x\nA+=y\na $A", [(3, ["a", "xy"])]),
        ("export A=1 B=2\nsh -c 'a $A $C'\na $A", [(2, ["sh", "-c", "a $A $C"]), (3, ["a", "1"])]),
        ("unset A; A=1; unset A\na $A", [(2, ["a", "?$A"])]),
        ("read A\na $A", [(2, ["a", "?$A"])]),
        ('eval "a b; c"', [(1, ["a", "b"]), (1, ["c"])]),
        ("env A=1 a b", [(1, ["a", "b"])]),
    ],
)
def test_words_and_values(text: str, read: Read) -> None:
    """Words are split and filled as a shell does it; what the script does not say stays as it is written."""
    assert read == commands(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("for i in 1 2; do a $i; done", [(1, ["a", "1"]), (1, ["a", "2"])]),
        ("for i in $(ls)\ndo\n a $i b\ndone", [(1, ["ls"]), (3, ["a", "?$(ls)", "b"])]),
        ("for i in $(seq 3 1); do a $i; done", [(1, ["seq", "3", "1"]), (1, ["a", "?$i"])]),
        ("for ((i=0; i<2; i++)); do a $i; done", [(1, ["a", "0"]), (1, ["a", "1"])]),
        ("for ((i=0; i<=$N; i++)); do a $i; done", [(1, ["a", "?$i"])]),
        ("for i in {0..1}; do for j in x y; do a $i$j; done; done", [(1, ["a", w]) for w in ("0x", "0y", "1x", "1y")]),
        (
            "i=0\nwhile test $i; do a $i; i=$((i+1)); done\nb $i",
            [(2, ["test", "?$i"]), (2, ["a", "?$i"]), (3, ["b", "?$i"])],
        ),
        ("if a; then X=1; else X=2; fi\nb $X", [(1, ["a"]), (2, ["b", "?$X"])]),
        ("if a; then X=1; elif b; then X=1; else X=1; fi\nc $X", [(1, ["a"]), (1, ["b"]), (2, ["c", "1"])]),
        ('A=(x)\nif t; then A+=(y); fi\na "${A[@]}"', [(2, ["t"]), (3, ["a", "x", "?y"])]),
        ("if a; then X=1; fi\nb $X", [(1, ["a"]), (2, ["b", "?$X"])]),
        ('if [[ -z "${X:-}" ]]; then X=1; fi\nb $X', [(1, ["[[", "-z", "", "]]"]), (2, ["b", "1"])]),
        ("X=0\ncase $1 in a) X=1;; b|c) X=2 ;; esac\nb $X", [(3, ["b", "?$X"])]),
        ("case $1 in\n a) p ;;\n *) q ;;\nesac", [(2, ["p"]), (3, ["q"])]),
        ("f() { a $1 $#; }\nf x; f y", [(1, ["a", "x", "?$#"]), (1, ["a", "y", "?$#"])]),
        ("function f { a \"$@\"; }\nf x 'y z'", [(1, ["a", "x", "y z"])]),
        ("f() { a $1; }", [(1, ["a", "?$1"])]),
        ("f() { f; }\nf", [(1, ["f"])]),
        ("(X=1; a $X)\na $X", [(1, ["a", "1"]), (2, ["a", "?$X"])]),
        ("{ X=1; a $X; }\na $X", [(1, ["a", "1"]), (2, ["a", "1"])]),
        ("bash <<'E'\na b\nE\nc", [(1, ["bash"]), (2, ["a", "b"]), (4, ["c"])]),
        ("cat <<-E >f\n\ta b\n\tE\nc", [(1, ["cat"]), (4, ["c"])]),
        ("done; fi; a\n) b\na (b)\nc", [(1, ["a"]), (3, ["a"]), (4, ["c"])]),
    ],
)
def test_the_way_through_a_script(text: str, read: Read) -> None:
    """Loops turn as often as their words say, and branches are gone through on both sides; what these leave is open."""
    assert read == commands(text)


@pytest.mark.parametrize(
    ("text", "line", "begins"),
    [
        ("a 'b\nc", 1, "'b"),
        ("a $(b\nc", 1, "$(b"),
        ("a ${b\nc", 1, "${b"),
        ("a `b", 1, "`b"),
        ("ok\nA=(b\nc d", 2, "A=(b"),
        ("ok\ncat <<EOF\nb\n", 3, "b"),
        ("for i in 1 2 do a; done", 1, "for i in 1 2 do a"),
    ],
)
def test_what_does_not_end(text: str, line: int, begins: str) -> None:
    """A quote, a bracket, a text or a loop that does not end is told of on its line."""
    found = [event for event in walk(text, Scope()) if isinstance(event, Broken)]
    assert (line, begins) == (found[0].line, found[0].text[: len(begins)])


def test_a_broken_line_takes_those_that_continue_it() -> None:
    """The lines that a backslash joins to a broken one are told of too, and the next command is read."""
    text = "a 'b \\\n --c \\\n --d\ne"
    broken = [(one.line, one.text) for one in tokens(text) if isinstance(one, Broken)]
    assert [(1, "'b \\"), (2, "--c \\"), (3, "--d")] == broken
    assert (4, ["e"]) in commands(text)


def test_lines_of_words() -> None:
    """A word stands on its own line; one that comes from a variable stands where that is set."""
    text = "A='--x 1'\nB=(\n --y\n 2)\na \\\n --z \\\n $A \"${B[@]}\" k$A"
    called = next(event for event in walk(text, Scope()) if isinstance(event, Called))
    read = [(one.text, one.line) for one in called.arguments]
    assert [("a", 5), ("--z", 6), ("--x", 1), ("1", 1), ("--y", 3), ("2", 4), ("k--x", 7), ("1", 7)] == read


def test_exported_variables() -> None:
    """A variable is told of when it is exported, and when an exported one changes."""
    events = walk("A=1\nexport A\nA=2\ndeclare -x B=3\nC=4\n", Scope())
    read = [(one.name, one.value.text, one.line) for one in events if isinstance(one, Exported)]
    assert [("A", "1", 2), ("A", "2", 3), ("B", "3", 4)] == read


def test_a_file_that_is_read_in() -> None:
    """``source`` sets the variables of a file that is there; without it they are not set."""
    with_file = walk("source conf/env.sh\na $X", Scope(), load={"conf/env.sh": "X=5"}.get)
    read = [event.arguments[1].text for event in with_file if isinstance(event, Called) and event.line == len("ab")]
    assert ["5"] == read
    assert (2, ["a", "?$X"]) in commands("source conf/env.sh\na $X")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1+2*3", 7), ("(A+1)/2", 4), ("-A/2", -3), ("$A % 4", 3), ("${A}*2", 14), ("A-B", 9)],
)
def test_whole_numbers(text: str, number: int) -> None:
    """Sums are worked out as a shell does, which rounds towards zero."""
    assert number == arithmetic(text, {"A": "7", "B": "-2"})


@pytest.mark.parametrize("text", ["C+1", "A**9", "1/0", "A+", "x(1)", "08", "(" * 300 + "1" + ")" * 300, "D"])
def test_numbers_that_cannot_be_worked_out(text: str) -> None:
    """Anything else gives a reason and no number."""
    assert isinstance(arithmetic(text, {"A": "7", "D": "four"}), str)


@pytest.mark.parametrize(
    "text",
    [
        "a " + "{a,b}" * 40,
        "a {1..99999999}",
        "X=aaaa\n" + "X=$X$X\n" * 60 + "a $X",
        "A=(a b)\n" + 'A+=("${A[@]}")\n' * 60 + 'a "${A[@]}"',
        "a " + "$(" * 500 + ")" * 500,
        "a " + "${X:-" * 500 + "}" * 500,
        "(" * 500 + "a" + ")" * 500,
        "if " * 500,
        "for a in {1..4000}; do for b in {1..4000}; do for c in {1..4000}; do x=1; done; done; done",
        "f() { f; f; }\nf",
        "a " + '"$(' * 200,
        "bash -c " * 50 + "'a'",
    ],
)
def test_scripts_that_would_swell(text: str) -> None:
    """A script that grows without end ends after a bounded number of commands and words."""
    events = list(walk(text, Scope()))
    assert 6_000 > len(events)
    assert all(len(event.arguments) < 10_000 for event in events if isinstance(event, Called))
