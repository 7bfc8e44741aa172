"""Target ``local``: one machine, with a container, without one, or with trtllm-serve in place of Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.serve.targets.documents import yaml_text
from trtllm_kit.serve.targets.found import (
    ALL,
    CHECKPOINT,
    HERE,
    REPOSITORY,
    beside_script,
    every_copy,
    links,
    own_places,
    place_problems,
)
from trtllm_kit.serve.targets.server import REPLICA, gpus_of, own_gpus, port, rank_commands, served, variables
from trtllm_kit.serve.targets.shell import Comment, Line, Run, Script, Set, Var, Word
from trtllm_kit.serve.targets.subject import RUNTIMES_IN_CONTAINER, Files, Subject
from trtllm_kit.upstream.deployment import serve_option
from trtllm_kit.upstream.llm_api import limits_section

MEMLOCK, STACK = "memlock=-1", "stack=67108864"
"""What NVIDIA's containers ask for when they start without it: pinned memory without limit, 64 MiB of stack."""
SETTINGS = "llm_args.yaml"
BARE = "tritonserver.sh"
_LIMITS = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width")


def local_files(subject: Subject) -> Files:
    """Return the scripts for one machine; raises ``ProfileError`` for a replica that one machine cannot hold."""
    subject.check("local", _problems(subject), image=False)
    files = {BARE: _bare(subject).text()}
    if _has_container(subject):
        files["container.sh"] = _container(subject).text()
    if not subject.engines and subject.runtime == "tensorrt_llm":
        files |= _trtllm_serve(subject)
    if subject.shares_host:
        files[ALL] = every_copy(_script(subject), subject.replicas_per_node).text()
    return files


def local_command(subject: Subject, folder: str) -> tuple[str, ...]:
    """Return the words that start what one machine serves: in containers, where the runtime is in one."""
    return ("sh", f"{folder}/{ALL if subject.shares_host else _script(subject)}")


def _script(subject: Subject) -> str:
    return "container.sh" if _has_container(subject) else BARE


def _has_container(subject: Subject) -> bool:
    in_it = subject.runtime in RUNTIMES_IN_CONTAINER or subject.deploy.image is not None
    return in_it and subject.image is not None


def _problems(subject: Subject) -> Iterator[str]:
    if subject.nodes > 1:
        yield (
            f"parallelism: a replica of {subject.world} ranks spans {subject.nodes} nodes of {subject.hardware.name}; "
            "target local is one machine, and mpirun, slurm and kubernetes take several"
        )
    if _has_container(subject):
        yield from place_problems(subject)


def _bare(subject: Subject) -> Script:
    ranks = rank_commands(subject, Var(REPOSITORY), subject.plan.serve.host)
    return Script(
        (
            Comment(f"Starts tritonserver with TensorRT-LLM {subject.version}, both of which must be installed."),
            *_replica(subject),
            *variables(subject),
            *own_gpus(subject),
            *beside_script(subject),
            served(subject, ranks),
        )
    )


def _container(subject: Subject) -> Script:
    """Run the other script in the container; the paths inside are those outside."""
    return Script(
        (
            Comment(f"Starts {BARE} in {subject.image}."),
            *_replica(subject),
            *(Run((":", Var(name))) for name in subject.deploy.secret_environment),
            *beside_script(subject),
            Run((*_docker(subject), "sh", (Var(HERE), f"/{BARE}")), last=True),
        )
    )


def _docker(subject: Subject) -> Iterator[Word]:
    """Yield the words of ``docker run`` up to the command."""
    name = (f"{subject.name}-", Var(REPLICA)) if subject.shares_host else subject.name
    yield from ("docker", "run", "--rm", "--init", "--name", name)
    if subject.on_gpus:  # of several replicas each picks its own GPUs in the script
        yield from ("--gpus", "all" if subject.shares_host else f'"device={gpus_of(subject, 0)}"')
    yield from ("--shm-size", str(subject.shm_bytes), "--ulimit", MEMLOCK, "--ulimit", STACK)
    yield from ("--network", "host", "--stop-timeout", str(subject.grace_seconds))
    for path in (HERE, REPOSITORY, *links(subject)):
        yield from ("--volume", (Var(path), ":", Var(path), ":ro"))
    for place in own_places(subject):
        yield from ("--mount", f"type=bind,source={place},target={place},readonly")
    for variable in (*([REPLICA] if subject.shares_host else []), *subject.deploy.secret_environment):
        yield from ("--env", variable)
    yield subject.image or ""


def _trtllm_serve(subject: Subject) -> Files:
    """Return the script of the alternative server, and its settings without what stands on its command line."""
    document, limits = _settings(subject)
    option = serve_option("--extra_llm_api_options", subject.version) or "--config"
    checkpoint: Word = subject.plan.serve.checkpoint_path or Var(CHECKPOINT)
    words: list[Word] = ["trtllm-serve", checkpoint, "--host", subject.plan.serve.host]
    words += ["--port", port(subject, "http"), *limits, option, (Var(HERE), f"/{SETTINGS}")]
    script = Script(
        (
            Comment("The alternative to Triton: the OpenAI endpoints of TensorRT-LLM's own server, on the HTTP port."),
            *_replica(subject),
            *variables(subject),
            *own_gpus(subject),
            *beside_script(subject),
            Run(tuple(words), last=True),
        )
    )
    head = f"Settings of trtllm-serve for TensorRT-LLM {subject.version}."
    return {"trtllm-serve.sh": script.text(), SETTINGS: yaml_text(document, head=head)}


def _settings(subject: Subject) -> tuple[dict[str, Any], list[str]]:
    """Return the file of settings and the options beside it.

    A release that keeps the limits in a section of the build takes them from the command line: trtllm-serve makes
    that section of its own options. A section of the file takes that one's place whole (``upstream/precedence.yaml``),
    so it is written, limits and all, only where the profile sets something else in it.
    """
    document = {key: value for key, value in llm_api_document(subject.plan).items() if key != "model"}
    section = limits_section(subject.version)
    if section:
        if document.get(section, {}).keys() <= {*_LIMITS, "max_input_len"}:
            document.pop(section, None)
        values = ((name, getattr(subject.plan.limits, name).value) for name in _LIMITS)
        return document, [word for name, value in values for word in (f"--{name}", str(value))]
    return document, []


def _replica(subject: Subject) -> Iterator[Line]:
    if subject.shares_host:
        yield Comment(f"{REPLICA} says which of {subject.replicas_per_node} copies on this machine it is, from 0 on.")
        yield Set(REPLICA, Var(REPLICA, "0"))
