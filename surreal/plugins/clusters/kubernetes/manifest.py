"""A manifest as plain data: what it is, and the few edits that a run needs of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from surreal.base.errors import ConfigError
from surreal.plugins.clusters.kubernetes.source import Manifest

#: Label with the kind of pod that a manifest is, or is for.
NAME_LABEL = "app.kubernetes.io/name"
PART_LABEL = "app.kubernetes.io/part-of"
#: Label with the run.
RUN_LABEL = "app.kubernetes.io/instance"
CHECKSUM = "surreal/app-checksum"
#: Image of all containers, as the manifests have it.
_IMAGE = "surreal:"
_GPU = "nvidia.com/gpu"
#: Where processes find their configuration; what else they are told follows it.
CONFIG_PATH = "/etc/surreal/app.yaml"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MIB = 2**20


def pod_name(manifest: Manifest) -> str:
    """Which pods it is, or is for: `agent`; "" if it is for all of them."""
    return str(manifest["metadata"].get("labels", {}).get(NAME_LABEL, ""))


def find(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest | None:
    """The manifest of a kind and a name; None if there is none."""
    return next((each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name), None)


def pod_template(manifest: Manifest) -> Manifest | None:
    """What its pods are made from; None if it makes none."""
    return manifest["spec"].get("template") if "containers" in _pod_spec(manifest) else None


def containers(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """The containers of its pods."""
    spec = _pod_spec(manifest)
    yield from spec.get("initContainers", ())
    yield from spec.get("containers", ())


def _pod_spec(manifest: Manifest) -> dict[str, Any]:
    template = manifest.get("spec", {}).get("template") or {}
    return dict(template.get("spec", {})) if isinstance(template, dict) else {}


def check_namespace(name: str, key: str) -> str:
    """Give a name if Kubernetes takes it for a namespace.

    Args:
        name: name of the namespace.
        key: option that it comes from.

    Raises:
        ConfigError: it does not.
    """
    if not _NAMESPACE.fullmatch(name):
        rule = "at most 63 small letters, digits and -, no - at an end"
        raise ConfigError(f"{name!r} cannot be the name of a namespace: {rule}; give another {key}", key=key)
    return name


def config_map(name: str, data: Mapping[str, str]) -> Manifest:
    """A ConfigMap."""
    metadata = {"name": name, "labels": {PART_LABEL: "surreal"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def put_into(manifest: Manifest, namespace: str, run: str, checksum: str) -> None:
    """Explain which run a manifest and its pods are of; pods start again when the checksum changes."""
    metadata = manifest["metadata"]
    metadata["name" if manifest["kind"] == "Namespace" else "namespace"] = namespace
    metadata.setdefault("labels", {})[RUN_LABEL] = run
    if (template := pod_template(manifest)) is not None:
        template["metadata"].setdefault("labels", {})[RUN_LABEL] = run
        template["metadata"].setdefault("annotations", {})[CHECKSUM] = checksum


def checksum_of(*texts: str) -> str:
    """A short text that differs where one of these does."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def set_image(manifest: Manifest, image: str, gpu_image: str) -> None:
    """Use an image in place of the one in k8s/, and another in containers that have GPUs."""
    for container in containers(manifest):
        if container["image"].startswith(_IMAGE):
            has_gpu = _GPU in container.get("resources", {}).get("limits", {})
            container["image"] = gpu_image if has_gpu else image


def add_settings(manifest: Manifest, settings: Sequence[str]) -> None:
    """Override settings in each container that reads the configuration."""
    for container in containers(manifest):
        if CONFIG_PATH in container.get("args", ()):
            container["args"] += [f"--set={setting}" for setting in settings]


def set_argument(manifest: Manifest, option: str, value: str) -> None:
    """Give an option another value, in each command that has it."""
    for container in containers(manifest):
        args = container.get("args", [])
        container["args"] = [f"{option}={value}" if word.startswith(f"{option}=") else word for word in args]


def add_arguments(manifest: Manifest, words: Sequence[str]) -> None:
    """Add words to the command of its only container."""
    (container,) = containers(manifest)
    container["args"] = [*container["args"], *words]


def mount(manifest: Manifest, name: str, volume: Mapping[str, Any], path: str) -> None:
    """Mount a volume, read-only, in all containers of its pods."""
    manifest["spec"]["template"]["spec"].setdefault("volumes", []).append({"name": name, **volume})
    for container in containers(manifest):
        container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path, "readOnly": True})


def scale(manifest: Manifest, namespace: str, run: str, *, most: int | None, prometheus: str | None) -> None:
    """Have a ScaledObject ask for figures of a run.

    Args:
        manifest: manifest of kind ScaledObject.
        namespace: namespace of the run: others may have a run of this name.
        run: its id.
        most: how many pods there may be; None: as it says.
        prometheus: URL of the Prometheus that is asked; None: as it says.
    """
    spec, labels = manifest["spec"], {"namespace": namespace, "run": run}
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        for label, value in labels.items():
            if "query" in metadata:
                metadata["query"] = re.sub(rf'\b{label}="[^"]*"', f'{label}="{value}"', metadata["query"])
        if prometheus is not None and "serverAddress" in metadata:
            metadata["serverAddress"] = prometheus
    if most is not None:
        spec["maxReplicaCount"] = most
        spec["minReplicaCount"] = min(spec.get("minReplicaCount", 0), most)


def use_s3(manifests: Sequence[Manifest], endpoint: str) -> dict[str, str]:
    """Let processes reach an S3 service at its port; returns what they need in their environment.

    Raises:
        ConfigError: it is not a URL, or a secret is in it.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(
            f"--s3-endpoint is {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r}; it must be "
            "http://HOST:PORT or https://HOST:PORT, without a user or password",
            key="--s3-endpoint",
        )
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if (policy := find(manifests, "NetworkPolicy", "from-learner-to-s3")) is not None:
        policy["spec"]["egress"] = [{"ports": [{"protocol": "TCP", "port": port}]}]
    return {"AWS_ENDPOINT_URL": endpoint}


def set_redis_memory(manifest: Manifest, maxmemory_bytes: int) -> None:
    """Give a Redis server the memory that its bound asks for, and the disk for its file.

    While the file is written again, memory is held twice in part, and the file is there twice.

    Args:
        manifest: manifest of the server.
        maxmemory_bytes: bound of its data.
    """
    set_argument(manifest, "--maxmemory", str(maxmemory_bytes))
    mib = -(-maxmemory_bytes // _MIB)
    for container in containers(manifest):
        container["resources"]["requests"]["memory"] = f"{mib * 3 // 2 + 128}Mi"
        container["resources"]["limits"]["memory"] = f"{mib * 2 + 256}Mi"
    for claim in manifest["spec"]["volumeClaimTemplates"]:
        claim["spec"]["resources"]["requests"]["storage"] = f"{max(8 * 1024, mib * 4)}Mi"
