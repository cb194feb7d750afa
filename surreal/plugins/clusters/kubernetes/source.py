"""Reads manifests: from k8s/ of a clone or its copy in the wheel, with kustomize for overlays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

import surreal
from surreal.base.errors import ConfigError

#: An object of Kubernetes, as read from YAML.
Manifest = dict[str, Any]

_TIMEOUT_S = 60.0


def manifests_folder() -> Path:
    """Find k8s/: inside the package, or next to it in a clone.

    Raises:
        ConfigError: it is not installed.
    """
    package = Path(surreal.__file__).resolve().parent
    for folder in (Path(__file__).parent / "manifests", package.parent / "k8s"):
        if (folder / "base" / "kustomization.yaml").is_file():
            return folder
    raise ConfigError("the manifests are not installed; they are in k8s/ of the source")


def overlay_names() -> list[str]:
    """List the overlays of k8s/."""
    return sorted(path.parent.name for path in manifests_folder().glob("overlays/*/kustomization.yaml"))


def read_base() -> list[Manifest]:
    """Read the manifests of the base, without those that kustomize generates from files.

    Raises:
        ConfigError: they are not installed.
    """
    folder = manifests_folder() / "base"
    names = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [found for name in names for found in _parse((folder / name).read_text(encoding="utf-8"))]


def read_overlay(overlay: str) -> list[Manifest]:
    """Build an overlay with kustomize: one of `overlay_names`, or the user's folder.

    Raises:
        ConfigError: the overlay does not exist, kubectl is missing, or kustomize refuses the overlay.
    """
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
    """Copy k8s/ into a new folder.

    Raises:
        ConfigError: the folder already exists, or cannot be written.
    """
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
    return [found for found in yaml.safe_load_all(text) if found]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
