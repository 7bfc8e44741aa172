"""Groups of pods for replicas that span nodes: LeaderWorkerSet, how the leader reaches its workers, NVLink domains.

Open MPI starts its daemon on the other pods through a program of ours that asks Kubernetes for it, so no pod runs an
SSH server and no key has to be made. The leader may read and enter the pods of its namespace, and nothing else.
"""

from __future__ import annotations

from trtllm_kit.serve.targets.objects import FILES, REPOSITORY_PATH, Object, made
from trtllm_kit.serve.targets.pods import SCRIPT, SERVER, container, nvlink_objects, pod, serving_container
from trtllm_kit.serve.targets.server import EVERY_ADDRESS, rank_commands, served
from trtllm_kit.serve.targets.shell import Arguments, Comment, Lent, Line, Run, Script, Set, Var, Word
from trtllm_kit.serve.targets.storage import volumes
from trtllm_kit.serve.targets.subject import Files, Subject

LEADER, WORKER = "leader", "worker"
POD = "POD_NAME"
AGENT, LEND = "enter-pod.sh", "lend.sh"
_TOOLS = "/tools"
_MPI_DAEMON = "orted|prted"
"""Open MPI's daemon up to its release 4, and from 5 on."""
_AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
"""Variables that name what starts the daemon on another host, for the same releases."""


def group_scripts(subject: Subject) -> Files:
    """Return what leaders and workers run, and how Open MPI enters a pod."""
    lend = (Comment("Lends this pod's GPUs to the leader, which starts its ranks here."), Lent(_MPI_DAEMON))
    return {SCRIPT: Script(tuple(_leader_lines(subject))).text(), AGENT: _agent().text(), LEND: Script(lend).text()}


def group_objects(subject: Subject, scripts: Files) -> list[Object]:
    """Return the set of groups, the rights of a leader, and the NVLink domain where the ranks have one."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
    ]
    account = {"kind": "ServiceAccount", "name": subject.name}
    if subject.deploy.namespace is not None:
        account["namespace"] = subject.deploy.namespace
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": subject.name}
    objects = [
        made(subject, "ServiceAccount", subject.name, {}),
        made(subject, "Role", subject.name, {"rules": rules}),
        made(subject, "RoleBinding", subject.name, {"subjects": [account], "roleRef": role}),
    ]
    return [*objects, *nvlink_objects(subject), _set(subject, scripts)]


def hosts(subject: Subject) -> Word:
    """Return the pods of a leader's group with the ranks on each, as Open MPI wants them: ``pod:4,pod-1:4``."""
    words: list[str | Var] = [Var(POD), f":{subject.gpus_per_node}"]
    for number in range(1, subject.nodes):
        words += [",", Var(POD), f"-{number}:{subject.gpus_per_node}"]
    return tuple(words)


def _leader_lines(subject: Subject) -> list[Line]:
    workers: list[Word] = [("pod/", Var(POD), f"-{number}") for number in range(1, subject.nodes)]
    limit = f"--timeout={int(subject.start_seconds)}s"
    ranks = rank_commands(subject, REPOSITORY_PATH, EVERY_ADDRESS)
    entered = ("--host", hosts(subject), "--map-by", f"ppr:{subject.gpus_per_node}:node")
    return [
        Comment(f"Waits for the workers of this group, then starts {subject.world} ranks over all of it."),
        Set("PATH", (_TOOLS, ":", Var("PATH"))),
        *(Set(name, f"{FILES}/{AGENT}") for name in _AGENTS),
        Run(("kubectl", "wait", "--for=create", limit, *workers)),
        Run(("kubectl", "wait", "--for=condition=Ready", limit, *workers)),
        served(subject, ranks, entered),
    ]


def _agent() -> Script:
    lines = (
        Comment("Runs the command of the later arguments in the pod that the first one names."),
        Set("TRTKIT_POD", Arguments(), export=False),
        Run(("shift",)),
        Run(
            ("kubectl", "exec", Var("TRTKIT_POD"), "--container", SERVER, "--", "/bin/sh", "-c", Arguments(all=True)),
            last=True,
        ),
    )
    return Script(lines)


def _set(subject: Subject, scripts: Files) -> Object:
    template = {
        "size": subject.nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _leader(subject, scripts),
        "workerTemplate": pod(
            subject, [container(subject, ["sh", f"{FILES}/{LEND}"])], volumes(subject, scripts), WORKER
        ),
    }
    rollout = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1}}
    spec = {
        "replicas": subject.replicas,
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": rollout,
        "leaderWorkerTemplate": template,
    }
    return made(subject, "LeaderWorkerSet", subject.name, {"spec": spec})


def _leader(subject: Subject, scripts: Files) -> Object:
    """Return the leader's template: it brings kubectl from another image, and may use the cluster's API."""
    serving = serving_container(subject)
    own_name = {"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    serving["env"] = [*serving.get("env", []), own_name]
    tools = {"name": "tools", "mountPath": _TOOLS}
    serving["volumeMounts"] = [*serving["volumeMounts"], tools | {"readOnly": True}]
    copied = f'cp "$$(command -v kubectl)" {_TOOLS}/kubectl'
    bring = {
        "name": "tools",
        "image": subject.deploy.kubectl_image,
        "command": ["sh", "-c", copied],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [tools],
    }
    made_pod = pod(subject, [serving], [*volumes(subject, scripts), {"name": "tools", "emptyDir": {}}], LEADER)
    made_pod["spec"] |= {
        "serviceAccountName": subject.name,
        "automountServiceAccountToken": True,
        "initContainers": [bring],
    }
    return made_pod
