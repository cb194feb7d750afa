"""Manifests as tests look at them: all that kustomize makes of k8s/, and what is in a pod."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
K8S = ROOT / "k8s"
#: What is rendered: the base, and each overlay.
BASE = K8S / "base"
OVERLAYS = sorted(path.parent for path in K8S.glob("overlays/*/kustomization.yaml"))

Manifest = dict[str, Any]


def build(folder: Path, kubectl: str) -> list[Manifest]:
    """What kustomize makes of a folder."""
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")  # a word that is out of use is a warning
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def find(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The one of a kind and a name."""
    (found,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pods(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """What makes pods, by the name of the pods, with what is in each of them."""
    for each in manifests:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield each["metadata"]["labels"]["app.kubernetes.io/name"], each["spec"]["template"]


def containers(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Each container, by the name of its pod."""
    for name, template in pods(manifests):
        for container in template["spec"]["containers"]:
            yield name, container
