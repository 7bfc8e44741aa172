"""Linting what a script says by variables, loops and branches; what it does not say is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.test_scripts import commands_in
from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.launched import launched
from trtllm_kit.lint.run import lint
from trtllm_kit.lint.shell import Started, started_in_image
from trtllm_kit.plan.settle import settle

GONE = "--max_output_len is gone since 0.12"
FMHA = "--context_fmha disable; not confirmed for this release"
BUILD = "trtllm-build --checkpoint_dir c"
SERVER = "tritonserver --backend-config=python,shm-region-prefix-name="
TWICE = "shm-region-prefix-name a more than once; not confirmed for this release"


def said(tmp_path: Path, text: str, name: str = "run.sh", context: Context | None = None) -> list[tuple[str, str]]:
    """Lint a script; return the place of each finding and what it compared."""
    (tmp_path / name).write_text(text)
    read = lint(tmp_path / name, context or Context("0.19.0"))
    return [(one.place, one.finding.compared) for one in read.findings]


@pytest.mark.parametrize(
    ("text", "words", "unsaid"),
    [
        (f"MAX_BATCH=64\n{BUILD} --max_batch_size $MAX_BATCH", "--max_batch_size 64", ()),
        (f"{BUILD} --max_batch_size $MAX_BATCH", "--max_batch_size $MAX_BATCH", ("$MAX_BATCH",)),
        (f"{BUILD} --max_batch_size ${{MAX_BATCH:-8}}", "--max_batch_size 8", ()),
        (f"TP=2; PP=4\n{BUILD} --workers $((TP * PP))", "--workers 8", ()),
        (f"{BUILD} --output_dir $(date)", "--output_dir $(date)", ("$(date)",)),
        (f"A=(--max_batch_size 4)\n{BUILD} ${{A[@]}}", "--max_batch_size 4", ()),
    ],
)
def test_a_word_is_what_the_script_says_or_as_it_is_written(text: str, words: str, unsaid: tuple[str, ...]) -> None:
    """The value where it is known; else the variable, told as one that is not."""
    last = commands_in(text)[-1]
    assert words == " ".join(last.words[3:])
    assert {*unsaid} == last.unsaid


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"FMHA=disable\n{BUILD} --context_fmha $FMHA\n", [("run.sh:2", FMHA)]),
        (f"FMHA=enable\n{BUILD} --context_fmha $FMHA\n", []),
        (f"{BUILD} --context_fmha $FMHA\n", []),
        (f"FMHA=disable\nif true; then FMHA=enable; fi\n{BUILD} --context_fmha $FMHA\n", []),
        (f"EXTRA='--max_output_len 9'\n\n{BUILD} $EXTRA\n", [("run.sh:1", GONE)]),
        (f"{BUILD} --$NAME 9 \"--max_${{OTHER}}_len\" 9\n", []),
        (f"{BUILD} \\\n  --max_seq_len 9 \\\n  --max_output_len 9\n", [("run.sh:3", GONE)]),
        (f"for n in 1 2; do\n  {BUILD} --max_output_len $n\ndone\n", [("run.sh:2", GONE)]),
        (f"run() {{ nohup \"$@\"; }}\n\nrun {BUILD} --max_output_len 9\n", [("run.sh:3", GONE)]),
        (f"docker run --rm i bash -ec 'cd /x\n{BUILD} --max_output_len 9'\n", [("run.sh:2", GONE)]),
        (f"cat > b.sh <<'EOF'\n{BUILD} --max_output_len 9\nEOF\n", [("run.sh:2", GONE)]),
        (f"cat > notes.txt <<'EOF'\n{BUILD} --max_output_len 9\nEOF\n", []),
        (f"bash build.sh -c '{BUILD} --max_output_len 9'\n", []),
    ],
)  # fmt: skip
def test_options_are_judged_by_their_values(text: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    """Once, on the line where the option stands."""
    assert found == said(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"for n in 0 1; do {SERVER}m$n & done\n", []),
        (f"for n in 0 1; do {SERVER}a & done\n", [("run.sh:1", TWICE)]),
        (f"P=a\n{SERVER}$P &\n{SERVER}a &\n", [("run.sh:3", TWICE)]),
        (f"{SERVER}$1 &\n{SERVER}$1 &\n", []),
        (f"if true; then\n{SERVER}a &\nelse\n{SERVER}a &\nfi\n", []),
        (f"if true; then\n{SERVER}a &\n{SERVER}a &\nfi\n", [("run.sh:3", TWICE)]),
        (f"for n in 0 1; do if [ $n = 0 ]; then {SERVER}a & fi; done\n", []),
        (f"one() {{ {SERVER}a & }}\ntwo() {{ {SERVER}a & }}\n", []),
        (f"one() {{ {SERVER}a & }}\none\none\n", [("run.sh:1", TWICE)]),
        (f"{SERVER}a &\nkill $!\n{SERVER}a &\n", []),
        (f"{SERVER}a &\nwait\n{SERVER}a\n", []),
        (f"({SERVER}a) &\n{SERVER}a\n", [("run.sh:2", TWICE)]),
        (f"{SERVER}a | tee log &\n{SERVER}a\n", [("run.sh:2", TWICE)]),
    ],
)
def test_only_servers_that_run_together_share_a_prefix(text: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    """Not two arms of a branch, nor functions that nothing calls, nor one that began after the other ended."""
    assert found == said(tmp_path, text)


@pytest.mark.parametrize(
    "command",
    [
        "docker stop tritonserver",
        "docker logs -f tritonserver",
        "docker exec -it tritonserver nvidia-smi",
        "docker exec tritonserver pkill -f trtllm-serve",
        "pkill -f tritonserver",
        "command -v tritonserver",
        "kubectl rollout restart deployment/tritonserver",
        "systemctl restart tritonserver",
        "cmake -S /src/tritonserver",
    ],
)
def test_to_speak_of_a_server_is_not_to_start_it(command: str) -> None:
    """Its name as that of a container, a service, a folder."""
    assert [] == [server for one in commands_in(command) for server in launched(one)]


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("mpirun -n $NP tritonserver", None),
        ("NP=4\nmpirun -n $NP tritonserver", 4),
        ("mpirun --hostfile h tritonserver", None),
        ("python3 launch_triton_server.py --world_size=$W", None),
        ("W=2\npython3 launch_triton_server.py --world_size=$W", 2),
        ("mpirun -n 2 bash -c 'tritonserver --x'", 2),
        ("mpirun -n 1 bash -c 'tritonserver' : -n 3 bash -c 'tritonserver'", 4),
        ("tritonserver", 1),
    ],
)
def test_ranks_are_as_many_as_the_script_says(command: str, ranks: int | None) -> None:
    """None where a variable or the hosts decide."""
    (server,) = [server for one in commands_in(command) for server in launched(one)]
    assert ranks == server.ranks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tritonserver", ["1 MPI ranks, tensor x pipeline x context of the engine is 2"]),
        ("NP=1\nmpirun -n $NP tritonserver", ["1 MPI ranks, tensor x pipeline x context of the engine is 2"]),
        ("mpirun -n $NP tritonserver", []),
        ("mpirun -n ${NP:-2} tritonserver", []),
        ("TRTLLM_ORCHESTRATOR=$1 tritonserver", []),
        ("docker run --ipc host -e TRTLLM_ORCHESTRATOR=1 i tritonserver", []),
    ],
)
def test_unknown_ranks_are_not_held_against_a_plan(text: str, found: list[str], tmp_path: Path) -> None:
    """Known ones are, whatever spells them."""
    changes = {"toolchain": "trtllm-build", "trtllm_version": "0.19.0", "parallelism.tensor": 2}
    loaded, machine = profile(changes), hardware(2)
    context = Context(None, loaded, machine, plan=settle(llama_8b(), loaded, machine))
    assert found == [compared.partition(";")[0] for _, compared in said(tmp_path, text, context=context)]


@pytest.mark.parametrize(
    ("options", "judged"),
    [("", True), ("--output_dir $OUT", True), ("$EXTRA", False), ('"$@"', False), ("--max_seq_len $LONG", False)],
)
def test_what_an_unknown_word_may_hold_is_not_missed(options: str, judged: bool, tmp_path: Path) -> None:
    """An option that is absent is one only where every word is known to be something else."""
    changes = {"toolchain": "trtllm-build", "trtllm_version": "0.19.0"}
    loaded, machine = profile(changes), hardware(2)
    context = Context(None, loaded, machine, plan=settle(llama_8b(), loaded, machine))
    found = said(tmp_path, f"{BUILD} {options}\n", context=context)
    assert judged == any("--max_seq_len absent" in compared for _, compared in found)


def test_a_folder_holds_where_the_script_is_in_it() -> None:
    """Not behind the brackets that changed to it, nor behind branches that differ."""
    text = "(cd a; one)\ntwo\ncd b\nthree\nif true; then cd c; fi\nfour\ncd /d\nfive\n"
    folders = {one.words[0]: one.folder for one in commands_in(text)}
    assert {"one": "a", "two": None, "three": "b", "true": "b", "four": None, "five": "/d"} == folders


DOCKERFILE = f"""FROM nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3 AS base
ENV FMHA=disable
RUN pip install x && \\
    {BUILD} --context_fmha $FMHA
RUN <<EOF
{BUILD} --max_output_len 9
EOF
FROM base
RUN {BUILD} --max_seq_len 9 $EXTRA
ENTRYPOINT ["trtllm-build"]
CMD ["--checkpoint_dir", "c", \\
     "--max_output_len", "9"]
"""


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.serve", "serve.dockerfile", "Containerfile"])
def test_a_dockerfile_is_linted_as_its_commands(name: str, tmp_path: Path) -> None:
    """With the variables of its stages, in all its forms, each finding on its line."""
    assert [(f"{name}:6", GONE), (f"{name}:12", GONE), (f"{name}:4", FMHA)] == said(tmp_path, DOCKERFILE, name)
    assert "Dockerfile" == lint(tmp_path / name, Context("0.19.0")).kind


def test_instructions_share_nothing_but_variables() -> None:
    """A folder or a server of one is not there in the next, and an image does not say how many ranks start."""
    text = f"FROM x\nRUN cd a && one\nRUN two\nRUN {SERVER}a &\nCMD {SERVER}a\n"
    assert [None] * 4 == [one.folder for one in started_in_image(text.encode()) if isinstance(one, Started)]


def test_the_steps_of_an_image_are_not_judged_together(tmp_path: Path) -> None:
    """Nor beside a plan by the ranks that one container has."""
    loaded, machine = profile({"toolchain": "trtllm-build", "parallelism.tensor": 2}), hardware(2)
    context = Context("0.19.0", loaded, machine, plan=settle(llama_8b(), loaded, machine))
    text = f'FROM x\nRUN {SERVER}a &\nCMD ["tritonserver", "--backend-config", "python,shm-region-prefix-name=a"]\n'
    assert [] == said(tmp_path, text, "Dockerfile", context)


def test_scripts_within_scripts_end() -> None:
    """Loops that start loops are read up to a number of commands, all of them together."""
    loops = "for i in {1..4000}; do bash -c 'for j in {1..4000}; do a; done'; done"
    assert 20_000 > len(commands_in(loops)) > 10_000
