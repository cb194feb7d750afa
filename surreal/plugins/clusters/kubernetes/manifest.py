"""A manifest as plain data: its parts, and the edits that a run needs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from surreal.base.errors import ConfigError
from surreal.plugins.clusters.kubernetes.source import Manifest

#: Label with the kind of pod that a manifest makes or concerns.
NAME_LABEL = "app.kubernetes.io/name"
PART_LABEL = "app.kubernetes.io/part-of"
#: Label with the run.
RUN_LABEL = "app.kubernetes.io/instance"
CHECKSUM = "surreal/app-checksum"
#: Image of all containers in k8s/.
_IMAGE = "surreal:"
_GPU = "nvidia.com/gpu"
#: Path of the configuration in containers; the settings that override it follow it in the arguments.
CONFIG_PATH = "/etc/surreal/app.yaml"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MIB = 2**20


def pod_name(manifest: Manifest) -> str:
    """Return the kind of pod that a manifest makes or concerns, such as `agent`; "" for all pods."""
    return str(manifest["metadata"].get("labels", {}).get(NAME_LABEL, ""))


def find(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest | None:
    """Return the manifest of a kind and name, or None."""
    return next((each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name), None)


def pod_template(manifest: Manifest) -> Manifest | None:
    """Return the template of a manifest's pods; None if it makes none."""
    return manifest["spec"].get("template") if "containers" in _pod_spec(manifest) else None


def containers(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the containers of a manifest's pods."""
    spec = _pod_spec(manifest)
    yield from spec.get("initContainers", ())
    yield from spec.get("containers", ())


def _pod_spec(manifest: Manifest) -> dict[str, Any]:
    template = manifest.get("spec", {}).get("template") or {}
    return dict(template.get("spec", {})) if isinstance(template, dict) else {}


def check_namespace(name: str, key: str) -> str:
    """Return a name that is valid for a namespace; `key` is the option that it comes from.

    Raises:
        ConfigError: the name is not valid.
    """
    if not _NAMESPACE.fullmatch(name):
        rule = "at most 63 lowercase letters, digits and -, with no - at the ends"
        raise ConfigError(f"{name!r} cannot be the name of a namespace: {rule}; give another {key}", key=key)
    return name


def config_map(name: str, data: Mapping[str, str]) -> Manifest:
    """Build a ConfigMap."""
    metadata = {"name": name, "labels": {PART_LABEL: "surreal"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def put_into(manifest: Manifest, namespace: str, run: str, checksum: str) -> None:
    """Label a manifest and its pods with their run; pods restart when the checksum changes."""
    metadata = manifest["metadata"]
    metadata["name" if manifest["kind"] == "Namespace" else "namespace"] = namespace
    metadata.setdefault("labels", {})[RUN_LABEL] = run
    if (template := pod_template(manifest)) is not None:
        template["metadata"].setdefault("labels", {})[RUN_LABEL] = run
        template["metadata"].setdefault("annotations", {})[CHECKSUM] = checksum


def checksum_of(*texts: str) -> str:
    """Compute a short checksum of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def set_image(manifest: Manifest, image: str, gpu_image: str) -> None:
    """Replace the image of k8s/ by `image`, or by `gpu_image` in containers with GPUs."""
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
    """Change an option's value in each command that has it."""
    for container in containers(manifest):
        args = container.get("args", [])
        container["args"] = [f"{option}={value}" if word.startswith(f"{option}=") else word for word in args]


def add_arguments(manifest: Manifest, words: Sequence[str]) -> None:
    """Add words to the command of a manifest's only container."""
    (container,) = containers(manifest)
    container["args"] = [*container["args"], *words]


def mount(manifest: Manifest, name: str, volume: Mapping[str, Any], path: str) -> None:
    """Mount a volume, read-only, in all containers of a manifest's pods."""
    manifest["spec"]["template"]["spec"].setdefault("volumes", []).append({"name": name, **volume})
    for container in containers(manifest):
        container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path, "readOnly": True})


def scale(manifest: Manifest, namespace: str, run: str, *, most: int | None, prometheus: str | None) -> None:
    """Make a ScaledObject query the metrics of a run in its namespace; another one may have a run with the same id.

    The number of pods is at most `most`; None leaves the maximum, or Prometheus, unchanged.
    """
    spec = manifest["spec"]
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        for label, value in (("namespace", namespace), ("run", run)):
            if "query" in metadata:
                metadata["query"] = re.sub(rf'\b{label}="[^"]*"', f'{label}="{value}"', metadata["query"])
        if prometheus is not None and "serverAddress" in metadata:
            metadata["serverAddress"] = prometheus
    if most is not None:
        spec["maxReplicaCount"] = most
        spec["minReplicaCount"] = min(spec.get("minReplicaCount", 0), most)


def use_s3(manifests: Sequence[Manifest], endpoint: str) -> dict[str, str]:
    """Allow connections to an S3 service, and return the environment variables that processes need.

    Raises:
        ConfigError: the endpoint is not a URL, or contains a secret.
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
    """Set a Redis server's memory and disk from the bound of its data.

    While Redis rewrites its file, part of the memory is in use twice, and the file exists twice.
    """
    set_argument(manifest, "--maxmemory", str(maxmemory_bytes))
    mib = -(-maxmemory_bytes // _MIB)
    for container in containers(manifest):
        container["resources"]["requests"]["memory"] = f"{mib * 3 // 2 + 128}Mi"
        container["resources"]["limits"]["memory"] = f"{mib * 2 + 256}Mi"
    for claim in manifest["spec"]["volumeClaimTemplates"]:
        claim["spec"]["resources"]["requests"]["storage"] = f"{max(8 * 1024, mib * 4)}Mi"
