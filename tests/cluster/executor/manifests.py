"""Manifests as they are read: a stream of YAML, selectors, shares, and which fields the executor knows.

A field that a pod has and the executor does not know is an error: no test is to pass because something was overlooked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

Manifest = dict[str, Any]

#: Kinds without an effect here: who may ask the API server for what, and how the cluster's own controllers behave.
WITHOUT_EFFECT = frozenset(
    {"Namespace", "PodDisruptionBudget", "ServiceAccount", "Role", "RoleBinding", "PriorityClass", "ScaledObject"}
)
KINDS = frozenset(
    {
        "ConfigMap",
        "Deployment",
        "Job",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Pod",
        "Secret",
        "Service",
        "StatefulSet",
    }
)
_POD_FIELDS = frozenset(
    {"containers", "enableServiceLinks", "hostname", "initContainers", "restartPolicy", "securityContext", "subdomain"}
    | {"terminationGracePeriodSeconds", "volumes"}
)
#: Where a pod may run, and what it may ask of the API server: there is one scheduler here, and no API server.
_POD_FIELDS_WITHOUT_EFFECT = frozenset(
    {"affinity", "automountServiceAccountToken", "dnsPolicy", "nodeSelector", "priorityClassName", "schedulerName"}
    | {"serviceAccountName", "tolerations", "topologySpreadConstraints"}
)
_CONTAINER_FIELDS = frozenset(
    {"args", "command", "env", "envFrom", "image", "lifecycle", "livenessProbe", "name", "ports", "readinessProbe"}
    | {"securityContext", "startupProbe", "volumeMounts", "workingDir"}
)
#: Resources are requested of a scheduler and bound by control groups, neither of which is here.
_CONTAINER_FIELDS_WITHOUT_EFFECT = frozenset({"imagePullPolicy", "resources", "terminationMessagePolicy"})


class Key(NamedTuple):
    """What a cluster knows an object by."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


def read(text: str, namespace: str) -> Iterator[tuple[Key, Manifest]]:
    """Yield the objects of a stream of manifests, those of kind List one by one; without a namespace, they get this.

    Raises:
        ValueError: for a kind or a pod's field that the executor does not know.
    """
    for document in yaml.safe_load_all(text):
        if document is None:
            continue
        for manifest in document["items"] if document["kind"] == "List" else [document]:
            metadata = manifest["metadata"]
            key = Key(manifest["kind"], metadata.setdefault("namespace", namespace), metadata["name"])
            if key.kind not in KINDS | WITHOUT_EFFECT:
                raise ValueError(f"{key}: the executor does not know this kind; it knows {', '.join(sorted(KINDS))}")
            template = manifest if key.kind == "Pod" else manifest.get("spec", {}).get("template")
            if template is not None:
                _check_pod(key, template["spec"])
            yield key, manifest


def _check_pod(key: Key, spec: Manifest) -> None:
    unknown = set(spec) - _POD_FIELDS - _POD_FIELDS_WITHOUT_EFFECT
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        unknown |= set(container) - _CONTAINER_FIELDS - _CONTAINER_FIELDS_WITHOUT_EFFECT
    if unknown:
        raise ValueError(f"{key}: the executor does not know {', '.join(sorted(unknown))} of a pod")


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector (matchLabels, matchExpressions) selects these labels; an empty one selects all."""
    if selector is None:
        return False
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_fits(expression, labels) for expression in selector.get("matchExpressions", []))


def _fits(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    label, values = labels.get(expression["key"]), expression.get("values", [])
    operators = {
        "In": label in values,
        "NotIn": label not in values,
        "Exists": label is not None,
        "DoesNotExist": label is None,
    }
    return operators[expression["operator"]]


def share(value: int | str, whole: int, *, up: bool) -> int:
    """A count that may be written as a percentage of `whole`, rounded up or down."""
    if isinstance(value, int):
        return value
    part = int(value.removesuffix("%")) * whole / 100
    return math.ceil(part) if up else math.floor(part)


def digest(template: Manifest) -> str:
    """A short name for a pod template: pods of another one are to be replaced."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def files_of(manifest: Manifest) -> dict[str, bytes]:
    """What a ConfigMap or a Secret holds, by key."""
    files = {name: text.encode() for name, text in manifest.get("stringData", {}).items()}
    if manifest["kind"] == "Secret":
        return {name: base64.b64decode(text) for name, text in manifest.get("data", {}).items()} | files
    files |= {name: base64.b64decode(text) for name, text in manifest.get("binaryData", {}).items()}
    return files | {name: text.encode() for name, text in manifest.get("data", {}).items()}
