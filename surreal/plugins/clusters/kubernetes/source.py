"""Where manifests come from: k8s/ of a clone, or the copy of it in the wheel, and kustomize for overlays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

import surreal
from surreal.base.errors import ConfigError

#: Objects as YAML gives them.
Manifest = dict[str, Any]

_TIMEOUT_S = 60.0


def manifests_folder() -> Path:
    """Find k8s/: inside the package, or next to it in a clone.

    Raises:
        ConfigError: it was not installed.
    """
    package = Path(surreal.__file__).resolve().parent
    for folder in (Path(__file__).parent / "manifests", package.parent / "k8s"):
        if (folder / "base" / "kustomization.yaml").is_file():
            return folder
    raise ConfigError("the manifests were not installed; they are in k8s/ of the source")


def overlay_names() -> list[str]:
    """Names of the overlays that come along."""
    return sorted(path.parent.name for path in manifests_folder().glob("overlays/*/kustomization.yaml"))


def read_base() -> list[Manifest]:
    """The manifests of the base, but for what kustomize makes out of files.

    Raises:
        ConfigError: they were not installed.
    """
    folder = manifests_folder() / "base"
    names = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [found for name in names for found in _parse((folder / name).read_text(encoding="utf-8"))]


def read_overlay(overlay: str) -> list[Manifest]:
    """The manifests of an overlay, as kustomize builds it.

    Args:
        overlay: one of `overlay_names`, or a folder of the user's own.

    Raises:
        ConfigError: there is no such overlay, no kubectl, or kustomize refuses it.
    """
    given = Path(overlay)
    folder = given if len(given.parts) > 1 or given.is_absolute() else manifests_folder() / "overlays" / overlay
    if not (folder / "kustomization.yaml").is_file():
        known = ", ".join(overlay_names())
        message = (
            f"--overlay {overlay}: {folder} has no kustomization.yaml; there are {known}, or name a folder: ./NAME"
        )
        raise ConfigError(message, key="--overlay")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigError(
            "--overlay needs kubectl, which has kustomize in it, and it is not on PATH; install it, or render without",
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
    """Copy k8s/ to where it can be edited.

    Raises:
        ConfigError: something is there already, or it cannot be written.
    """
    try:
        shutil.copytree(manifests_folder(), folder, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    except FileExistsError:
        raise ConfigError(f"{folder} exists already; name a folder that does not") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error


def write_manifests(manifests: list[Manifest]) -> str:
    """Write manifests as one YAML text, texts of several lines as they are."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _parse(text: str) -> list[Manifest]:
    return [found for found in yaml.safe_load_all(text) if found]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and nothing as a reference to something above it."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
