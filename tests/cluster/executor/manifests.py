"""Manifests as they are read: a stream of YAML, selectors, shares, and the fields of pods that the executor knows.

A field that the executor does not know is an error: no test may pass because something was overlooked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import yaml

Manifest = dict[str, Any]

KINDS = "ConfigMap Deployment NetworkPolicy PersistentVolumeClaim Pod Secret Service StatefulSet"
#: Kinds without an effect here: rights at the API server, and hints for controllers that are not here.
_WITHOUT_EFFECT = "Namespace PodDisruptionBudget PriorityClass Role RoleBinding ScaledObject ServiceAccount"
#: The second and third lines are for schedulers and API servers, which are not here.
_POD_FIELDS = """
containers hostname restartPolicy securityContext subdomain terminationGracePeriodSeconds volumes
affinity automountServiceAccountToken dnsPolicy enableServiceLinks imagePullSecrets nodeSelector priorityClassName
schedulerName serviceAccountName tolerations topologySpreadConstraints
"""
_CONTAINER_FIELDS = """
args command env envFrom image lifecycle livenessProbe name ports readinessProbe resources securityContext startupProbe
volumeMounts imagePullPolicy terminationMessagePolicy
"""


class Key(NamedTuple):
    """What a cluster knows an object by."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


def read(text: str, namespace: str) -> Iterator[tuple[Key, Manifest]]:
    """Yield the objects of a stream of manifests; those without a namespace get this one."""
    for manifest in filter(None, yaml.safe_load_all(text)):
        metadata = manifest["metadata"]
        key = Key(manifest["kind"], metadata.setdefault("namespace", namespace), metadata["name"])
        if key.kind not in f"{KINDS} {_WITHOUT_EFFECT}".split():
            raise ValueError(f"{key}: the executor does not know this kind; it knows {KINDS}")
        template = manifest if key.kind == "Pod" else manifest.get("spec", {}).get("template")
        if template is not None:
            unknown = {*template["spec"]}.difference(_POD_FIELDS.split())
            unknown |= {*chain(*template["spec"]["containers"])}.difference(_CONTAINER_FIELDS.split())
            if unknown:
                raise ValueError(f"{key}: the executor does not know {', '.join(sorted(unknown))} of a pod")
        yield key, manifest


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects these labels; an empty one selects all."""
    is_selected = selector.get("matchLabels", {}).items() <= labels.items()
    for expression in selector.get("matchExpressions", []):
        is_in = labels.get(expression["key"]) in expression["values"]
        is_selected &= {"In": is_in, "NotIn": not is_in}[expression["operator"]]
    return is_selected


def share(value: int | str, whole: int, *, up: bool) -> int:
    """A count that may be written as a percentage of `whole`, rounded up or down."""
    if isinstance(value, int):
        return value
    part = int(value.removesuffix("%")) * whole / 100
    return math.ceil(part) if up else math.floor(part)


def digest(template: Manifest) -> str:
    """A short name for a pod template: pods made from another one are replaced."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def files_of(manifest: Manifest) -> dict[str, bytes]:
    """What a ConfigMap or a Secret holds, by key."""
    decode = base64.b64decode if manifest["kind"] == "Secret" else str.encode
    files = {name: decode(text) for name, text in manifest.get("data", {}).items()}
    return files | {name: text.encode() for name, text in manifest.get("stringData", {}).items()}
