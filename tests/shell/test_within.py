"""Scripts within scripts, what runs in the background, and which branch a command stands in."""

from __future__ import annotations

import pytest

from trtllm_kit.shell.dockerfile import NAMES, Copied, Image, NoInstruction, Script, Step, Variable, Words, steps
from trtllm_kit.shell.values import FOLDER, Argument, Scope
from trtllm_kit.shell.walk import Called, walk
from trtllm_kit.shell.within import text_for_shell, written_scripts


def called(text: str) -> list[Called]:
    """Return what a script starts."""
    return [event for event in walk(text, Scope()) if isinstance(event, Called)]


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("bash -c x", (0, 2)),
        ("/bin/sh -ec x", (0, 2)),
        ("mpirun -n 2 bash -e -o pipefail -c x", (3, 8)),
        ("docker run sh image bash -lc x", (4, 6)),
        ("bash script.sh -c x", None),
        ("bash --norc x", None),
        ("bash -c", None),
        ("tar -c x", None),
    ],
)
def test_the_text_of_a_shell_is_found(words: str, places: tuple[int, int] | None) -> None:
    """Behind -c among its own options, whatever starts the shell."""
    assert places == text_for_shell([Argument(word, 1) for word in words.split()])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\ncat > run.sh <<EOF\na $A \\$B\nEOF\n", [("a 1 $B", 3)]),
        ("cat > run.sh <<'EOF'\na $A\nEOF\n", [("a $A", 2)]),
        ("tee run <<'EOF'\n#!/bin/sh\na\nEOF\n", [("#!/bin/sh\na", 2)]),
        ("cat > run.txt <<EOF\na\nEOF\n", []),
        ("bash -s <<EOF\n#!/bin/sh\na\nEOF\n", []),
    ],
)
def test_a_script_that_is_written_is_known_by_its_name_or_first_line(text: str, found: list[tuple[str, int]]) -> None:
    """With the variables of the text around it, where a shell puts them in; not one that a shell is handed."""
    within = [one for event in called(text) for one in written_scripts(event)]
    shown = [(one.text.replace("$A", one.scope.values["A"][0].text) if "A" in one.scope.values else one.text, one.line)
             for one in within]  # fmt: skip
    assert found == shown


@pytest.mark.parametrize(
    ("text", "background"),
    [
        ("a & b", "a"),
        ("a; b && c | d &\ne", "bcd"),
        ("(a; b) & c", "ab"),
        ("for n in 1; do a; done & b", "a"),
        ("if a; then b; else c; fi & d", "bc"),
        ("a & b && c", "a"),
        ("{ a & }; b", "a"),
        ("a &> log\nb 2>&1", ""),
    ],
)
def test_a_sign_sends_its_whole_list_to_the_background(text: str, background: str) -> None:
    """Pipelines, brackets and loops with all that is in them; redirections are no such sign."""
    assert background == "".join(one.arguments[0].text for one in called(text) if one.background)


def test_each_command_says_its_branch_and_arm() -> None:
    """Functions that nothing calls are arms of their own; one that is called stands where it is called."""
    text = "a\nif b; then c; else d; fi\nf() { e; }\ng() { h; }\nf\n"
    assert {
        "a": ((0, 0),), "b": ((0, 0),), "c": ((0, 0), (2, 0)), "d": ((0, 0), (2, 1)), "e": ((0, 0),), "h": ((0, 1),),
    } == {one.arguments[0].text: one.arms for one in called(text)}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("cd /a; cd b", "/a/b"), ("cd a && cd -P b", "a/b"), ("cd /a; cd $B", None), ("cd $B; cd /a", "/a"),
        ("cd $B; cd a", None), ("cd", None), ("cd -", None), ("pushd /a", "/a"), ("pushd /a; popd", None),
        ("for n in 1 2; do cd /$n; done", "/2"), ("cd /a; while b; do cd c; done", None),
    ],
)  # fmt: skip
def test_the_folder_is_followed(text: str, folder: str | None) -> None:
    """As far as the script says it."""
    scope = Scope()
    assert list(walk(text, scope))
    held = scope.values[FOLDER][0]
    assert folder == (None if held.why else held.text)


def test_a_dockerfile_is_gone_through_in_order() -> None:
    """Images, variables, texts for a shell, lists of words, files; the rest is told as no instruction."""
    text = 'ARG V=1\nFROM a:$V AS one\nENV A=2\nRUN x $A\nCOPY <<EOF /f\nb\nEOF\nFROM one\nCMD ["c"]\nRUNN d\nUSER e\n'
    shown: list[tuple[type[Step], str, int]] = []
    for step in steps(text, set()):
        if isinstance(step, Image):
            shown.append((Image, step.name.text, step.line))
        elif isinstance(step, Variable):
            shown.append((Variable, f"{step.name}={step.value.text}", step.line))
        elif isinstance(step, Words):
            shown.append((Words, step.words[0].text + step.scope.values["A"][0].text, step.words[0].line))
        else:
            shown.append((type(step), step.text, step.line))
    assert [
        (Image, "a:1", 2), (Variable, "A=2", 3), (Script, "x $A", 4), (Copied, "b", 6), (Words, "c2", 9),
        (NoInstruction, "RUNN d", 10),
    ] == shown  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Dockerfile", True), ("Dockerfile.gpu", True), ("serve.dockerfile", True), ("Containerfile", True),
        ("Dockerfile-notes", False), ("dockerfiles", False), ("a.txt", False),
    ],
)  # fmt: skip
def test_a_dockerfile_is_known_by_its_name(name: str, known: bool) -> None:
    """With an ending, or as one."""
    assert known == (NAMES.fullmatch(name) is not None)
