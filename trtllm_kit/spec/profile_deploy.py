"""The section of a deploy profile for ``trtkit deploy --target``: names, images, storage and limits of a deployment.

Every text here ends in a manifest or a script, so each has the form that its reader takes and no other.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from trtllm_kit.spec.profile_sections import Positive, Strict
from trtllm_kit.spec.system_text import REFUSED, Host, VariableName
from trtllm_kit.units import parse_bytes, parse_seconds

SERVICE_NAME = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
"""A label of RFC 1035, which names of Services must be; nothing shorter than that is checked of their length."""
_LABEL_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
_OBJECT_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
_IMAGE = (
    r"^[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
_URL = r"^https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$"
_QUEUE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_LABEL_KEY = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_SECRET = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253}$"  # noqa: S105  # a form, and no secret
LONGEST_NAME = 40
"""Longest name of a deployment: its objects and pods get suffixes, and labels end at 63 characters, Grove's at 45."""


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError(REFUSED, "{text}", {"text": text})


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not re.fullmatch(_LABEL_KEY, key):
            raise _refusal(f"found the key {key[:80]!r}; allowed is a label's, e.g. nvidia.com/gpu.product")
        if not re.fullmatch(_LABEL_VALUE, value):
            raise _refusal(
                f"found {value[:80]!r}; allowed in a label are letters, digits, dots, dashes and underscores"
            )
    return labels


Name = Annotated[str, Field(pattern=SERVICE_NAME, max_length=LONGEST_NAME)]
ObjectName = Annotated[str, Field(pattern=_OBJECT_NAME, max_length=253)]
Namespace = Annotated[str, Field(pattern=_LABEL_NAME, max_length=63)]
Image = Annotated[str, Field(pattern=_IMAGE, max_length=400, examples=["registry.example.com/team/server:1.2"])]
Queue = Annotated[str, Field(pattern=_QUEUE)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
SecretKey = Annotated[str, Field(pattern=_SECRET, examples=["hub-access/token"])]
Url = Annotated[str, Field(pattern=_URL, max_length=2000, examples=["http://prometheus.monitoring:9090"])]
"""An address without user, password or query: files of a deployment hold no secrets."""
Drain = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Field(ge=1, le=86400, json_schema_extra={"type": ["number", "string"], "examples": ["60s", "5 min"]}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(ge=1, json_schema_extra={"type": ["integer", "string"], "examples": ["64 GiB"]}),
]


class Deploy(Strict):
    """Names, images, storage and limits of the targets of ``trtkit deploy --target``."""

    name: Name | None = Field(
        None, description="Name of everything that is made; absent takes the profile's, with dashes for dots."
    )
    namespace: Namespace | None = Field(
        None, description="Namespace of the objects; absent writes none, and the one kubectl is set to is used."
    )
    image: Image | None = Field(
        None, description="Container to serve from; absent takes the Triton container that holds the release."
    )
    dynamo_image: Image | None = Field(
        None, description="Container of target dynamo; absent takes Dynamo's runtime that holds the release."
    )
    kubectl_image: Image = Field(
        "docker.io/alpine/kubectl:1.34.1",
        description="Container with kubectl and a shell, from which a leader over several nodes takes kubectl.",
    )
    pull_secret: ObjectName | None = Field(
        None, description="Name of the Secret in the cluster with which the images are pulled."
    )
    volume_claim: ObjectName | None = Field(
        None, description="Existing volume claim that holds the checkpoint (and engines); absent writes one."
    )
    volume_image: Image | None = Field(
        None, description="OCI image that holds the checkpoint, in place of a volume claim (Kubernetes 1.33 or later)."
    )
    storage_class: ObjectName | None = Field(
        None, description="Storage class of the claim that is written; absent takes the cluster's own."
    )
    cpu: Positive | None = Field(None, description="CPUs that a pod asks for; absent asks for none.")
    memory: Size | None = Field(None, description="Host memory that a pod asks for; absent asks for none.")
    drain: Drain = Field(
        60.0,
        description="Time that running requests have to finish when a server is stopped. Raising it costs time until "
        "a server that hangs is ended.",
    )
    max_replicas: Positive | None = Field(
        None, description="Copies up to which the deployment grows with its load; absent keeps their number."
    )
    prometheus: Url | None = Field(
        None, description="Prometheus that KEDA asks for the load; absent scales by a metric of the cluster's own API."
    )
    gateway: ObjectName | None = Field(
        None, description="Gateway (Gateway API) to which a route to the servers is attached."
    )
    node_selector: Labels = Field(
        {}, description="Labels of the nodes to run on, beside those of the GPU; a key given here replaces trtkit's."
    )
    secret_environment: dict[VariableName, SecretKey] = Field(
        {},
        description="Environment variables that come from Secrets of the cluster, as NAME: secret/key; outside of a "
        "cluster they are taken from the shell that starts the server.",
    )
    hosts: tuple[Host, ...] = Field(
        (), description="Names of the nodes, for target mpirun over several nodes and for what Prometheus scrapes."
    )
    partition: Queue | None = Field(None, description="Slurm partition; absent takes the cluster's own.")
    account: Queue | None = Field(None, description="Slurm account; absent takes the user's own.")
    pyxis: bool = Field(
        True, description="Whether Slurm starts containers (pyxis); without it the nodes have the release installed."
    )
    prefill_replicas: Positive | None = Field(
        None,
        description="Copies, of parallelism.replicas, that only read prompts in Dynamo's disaggregated serving; the "
        "others only generate. Absent writes aggregated serving alone.",
    )
