"""Schemas of custom resources, as strict as their own: every field their types have that a target may write.

Read in 2026: kubernetes-sigs/lws api/leaderworkerset/v1, NVIDIA/k8s-dra-driver-gpu api/nvidia.com/resource/v1beta1,
prometheus-operator pkg/apis/monitoring/v1, kedacore/keda apis/keda/v1alpha1, ai-dynamo/dynamo
deploy/operator/api/v1beta1 and gateway-api apis/v1 (that one recalled).
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT, COUNT, SWITCH, ANY = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}, {}
WHOLE = {"type": "integer", "minimum": 1}
LABELS = {"type": "object", "additionalProperties": TEXT}
DURATION = {"type": "string", "pattern": "^(0|([0-9]+(ms|s|m|h|d)))$"}
COMPONENT_NAME = {"type": "string", "pattern": "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$", "maxLength": 63}
POD_TEMPLATE = {"type": "object", "x-pod-template": True}


def of(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Schema:
    """Return the schema of an object with these fields and no others."""
    fields = required | (optional or {})
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def several(one: Any, least: int = 1) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": one, "minItems": least}


def one_of(*words: str) -> Schema:
    """Return the schema of a word."""
    return {"enum": list(words)}


def resource(kind: str, api: str, spec: Schema) -> Schema:
    """Return the schema of a resource with metadata."""
    metadata = of({"name": TEXT}, {"namespace": TEXT, "labels": LABELS, "annotations": LABELS})
    return of({"apiVersion": one_of(api), "kind": one_of(kind), "metadata": metadata, "spec": spec})


_SELECTOR = of({}, {"matchLabels": LABELS, "matchExpressions": several(ANY)})
_ROLLING = of({}, {"partition": COUNT, "maxUnavailable": COUNT, "maxSurge": COUNT})
_GROUP = of(
    {"workerTemplate": POD_TEMPLATE},
    {
        "leaderTemplate": POD_TEMPLATE,
        "size": WHOLE,
        "restartPolicy": one_of("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"),
        "subGroupPolicy": ANY,
    },
)
_RULE = {
    "oneOf": [
        of({"record": TEXT, "expr": TEXT}, {"labels": LABELS}),
        of({"alert": TEXT, "expr": TEXT}, {"for": DURATION, "labels": LABELS, "annotations": LABELS}),
    ]
}
_COMPONENT = of(
    {"name": COMPONENT_NAME},
    {
        "type": one_of("frontend", "worker", "prefill", "decode", "planner", "epp"),
        "podTemplate": POD_TEMPLATE,
        "replicas": COUNT,
        "multinode": of({"nodeCount": {"type": "integer", "minimum": 2}}),
        "sharedMemorySize": TEXT,
        "scalingAdapter": ANY,
        "runtimeVersionOverride": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    },
)
_TRIGGER = of({"type": TEXT, "metadata": LABELS}, {"metricType": one_of("AverageValue", "Value"), "name": TEXT})
_SCALED = of(
    {"scaleTargetRef": of({"name": TEXT}, {"apiVersion": TEXT, "kind": TEXT}), "triggers": several(_TRIGGER)},
    {
        "pollingInterval": COUNT,
        "cooldownPeriod": COUNT,
        "minReplicaCount": COUNT,
        "maxReplicaCount": WHOLE,
        "advanced": of({}, {"horizontalPodAutoscalerConfig": of({}, {"behavior": ANY, "name": TEXT})}),
        "fallback": ANY,
    },
)
_ENDPOINT = of({"port": TEXT}, {"path": TEXT, "interval": DURATION, "scheme": one_of("http", "https")})
_ROUTE_RULE = of(
    {"backendRefs": several(of({"name": TEXT, "port": WHOLE}))},
    {"matches": several(of({"path": of({"type": one_of("PathPrefix", "Exact"), "value": TEXT})}))},
)
SCHEMAS = {
    "LeaderWorkerSet": resource(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        of(
            {"leaderWorkerTemplate": _GROUP},
            {
                "replicas": COUNT,
                "rolloutStrategy": of({"type": one_of("RollingUpdate")}, {"rollingUpdateConfiguration": _ROLLING}),
                "startupPolicy": one_of("LeaderCreated", "LeaderReady"),
                "networkConfig": ANY,
            },
        ),
    ),
    "ComputeDomain": resource(
        "ComputeDomain",
        "resource.nvidia.com/v1beta1",
        of(
            {
                "numNodes": COUNT,
                "channel": of(
                    {"resourceClaimTemplate": of({"name": TEXT})}, {"allocationMode": one_of("All", "Single")}
                ),
            }
        ),
    ),
    "PodMonitor": resource(
        "PodMonitor",
        "monitoring.coreos.com/v1",
        of({"selector": _SELECTOR, "podMetricsEndpoints": several(_ENDPOINT)}, {"jobLabel": TEXT}),
    ),
    "PrometheusRule": resource(
        "PrometheusRule",
        "monitoring.coreos.com/v1",
        of({"groups": several(of({"name": TEXT, "rules": several(_RULE)}, {"interval": DURATION}))}),
    ),
    "ScaledObject": resource("ScaledObject", "keda.sh/v1alpha1", _SCALED),
    "HTTPRoute": resource(
        "HTTPRoute",
        "gateway.networking.k8s.io/v1",
        of({"parentRefs": several(of({"name": TEXT})), "rules": several(_ROUTE_RULE)}),
    ),
    "DynamoGraphDeployment": resource(
        "DynamoGraphDeployment",
        "nvidia.com/v1beta1",
        of(
            {"components": several(_COMPONENT)},
            {"backendFramework": one_of("trtllm"), "env": ANY, "annotations": LABELS},
        ),
    ),
}
