"""Manifests: read from k8s/ of a clone or of the wheel, with kustomize for overlays, and edited as a run needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

import surreal
from surreal.base.errors import ConfigError
from surreal.config.yaml_tree import SAFE_LOADER, Dumper

#: An object of Kubernetes, as read from YAML.
Manifest = dict[str, Any]

_TIMEOUT_S = 60.0


def manifests_folder() -> Path:
    """Find k8s/: inside the package, or next to it in a clone."""
    package = Path(surreal.__file__).resolve().parent
    for folder in (Path(__file__).parent / "manifests", package.parent / "k8s"):
        if (folder / "base" / "kustomization.yaml").is_file():
            return folder
    raise ConfigError("the manifests are not installed; they are in k8s/ of the source")


def overlay_names() -> list[str]:
    """List the overlays of k8s/."""
    return sorted(path.parent.name for path in manifests_folder().glob("overlays/*/kustomization.yaml"))


def read_base() -> list[Manifest]:
    """Read the manifests of the base, without those that kustomize generates from files."""
    folder = manifests_folder() / "base"
    names = _parse((folder / "kustomization.yaml").read_text(encoding="utf-8"))[0]["resources"]
    return [found for name in names for found in _parse((folder / name).read_text(encoding="utf-8"))]


def read_overlay(overlay: str) -> list[Manifest]:
    """Build an overlay with kustomize: one of `overlay_names`, or the user's folder."""
    given = Path(overlay)
    folder = given if len(given.parts) > 1 or given.is_absolute() else manifests_folder() / "overlays" / overlay
    if not (folder / "kustomization.yaml").is_file():
        known = ", ".join(overlay_names())
        message = f"--overlay {overlay}: {folder} has no kustomization.yaml; use {known}, or a folder: ./NAME"
        raise ConfigError(message, key="--overlay")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigError(
            "--overlay needs kubectl, which contains kustomize, but it is not on PATH; install it, or omit --overlay",
            key="--overlay",
        )
    try:
        command = [kubectl, "kustomize", str(folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"kubectl kustomize {folder} took longer than {_TIMEOUT_S:.0f} s", key="--overlay") from None
    if done.returncode:
        raise ConfigError(f"kubectl kustomize {folder} failed: {done.stderr.strip()}", key="--overlay")
    return _parse(done.stdout)


def copy_manifests(folder: Path) -> None:
    """Copy k8s/ into a new folder."""
    try:
        shutil.copytree(manifests_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    except FileExistsError:
        raise ConfigError(f"{folder} already exists; name a new folder") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error


def write_manifests(manifests: list[Manifest]) -> str:
    """Write manifests as one YAML text, in which texts of several lines stay readable."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _parse(text: str) -> list[Manifest]:
    return [found for found in yaml.load_all(text, SAFE_LOADER) if found]


class _Dumper(Dumper):
    """Writes texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


#: Label with the kind of pod that a manifest makes or concerns.
NAME_LABEL = "app.kubernetes.io/name"
PART_LABEL = "app.kubernetes.io/part-of"
#: Label with the run.
RUN_LABEL = "app.kubernetes.io/instance"
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
    template = manifest.get("spec", {}).get("template")
    return template if isinstance(template, dict) and "containers" in template.get("spec", {}) else None


def containers(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the containers of a manifest's pods."""
    if (template := pod_template(manifest)) is not None:
        yield from template["spec"].get("initContainers", ())
        yield from template["spec"]["containers"]


def check_namespace(name: str, key: str) -> str:
    """Return a name that is valid for a namespace; `key` is the option that it comes from."""
    if not _NAMESPACE.fullmatch(name):
        rule = "at most 63 lowercase letters, digits and -, with no - at the ends"
        raise ConfigError(f"{name!r} cannot be the name of a namespace: {rule}; give another {key}", key=key)
    return name


def config_map(name: str, data: Mapping[str, str]) -> Manifest:
    """Build a ConfigMap."""
    metadata = {"name": name, "labels": {PART_LABEL: "surreal"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def set_argument(manifest: Manifest, option: str, value: str) -> None:
    """Change an option's value in each command that has it."""
    for container in containers(manifest):
        args = container.get("args", [])
        container["args"] = [f"{option}={value}" if word.startswith(f"{option}=") else word for word in args]


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
    """Allow connections to an S3 service, and return the environment variables that processes need."""
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
