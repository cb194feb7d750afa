"""Volumes of pods, as folders of this machine that containers get bound into their file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.executor.manifests import Manifest, files_of

_DEFAULT_MODE = 0o644
#: How the API finds an object that a pod names: kind and name.
Lookup = Callable[[str, str], Manifest | None]


class Mount(NamedTuple):
    """A folder or a file of this machine, and where a container sees it."""

    source: Path
    target: str
    is_read_only: bool = False


class Volumes:
    """The volumes of one pod.

    Args:
        folder: Where to make those that live as long as the pod.
        claims: Where the volumes of PersistentVolumeClaims are, by claim; they outlive the pod.
        lookup: Finds ConfigMaps, Secrets and claims of the pod's namespace.
        group: The pod's `fsGroup`, to which what can be written belongs.
    """

    def __init__(self, folder: Path, claims: Path, lookup: Lookup, group: int | None) -> None:
        self._folder, self._claims, self._lookup, self._group = folder, claims, lookup, group
        self._sources: dict[str, tuple[Path, bool]] = {}

    def make(self, volumes: list[Manifest]) -> None:
        """Make the volumes of a pod.

        Raises:
            LookupError: if something is missing; the pod waits until it is there.
        """
        for volume in volumes:
            if volume["name"] not in self._sources:
                self._sources[volume["name"]] = self._make(volume)

    def mounts(self, container: Manifest) -> list[Mount]:
        """What a container sees of them, outer folders first."""
        mounts = []
        for wanted in container.get("volumeMounts", []):
            source, is_read_only = self._sources[wanted["name"]]
            part = source / wanted.get("subPath", "")
            if not part.exists():
                self._own(part)
            mounts.append(Mount(part, wanted["mountPath"], is_read_only or wanted.get("readOnly", False)))
        return sorted(mounts, key=lambda mount: mount.target.count("/"))

    def _make(self, volume: Manifest) -> tuple[Path, bool]:
        folder = self._folder / volume["name"]
        match volume:
            case {"emptyDir": _}:
                return self._own(folder), False
            case {"hostPath": {"path": path}}:
                return Path(path), False
            case {"persistentVolumeClaim": {"claimName": claim, **options}}:
                self._find("PersistentVolumeClaim", claim)
                return self._own(self._claims / claim), bool(options.get("readOnly"))
            case {"configMap": source} | {"secret": source}:
                self._write(folder, *self._read(volume, source), source.get("defaultMode", _DEFAULT_MODE))
            case {"projected": projected}:
                for part in projected["sources"]:
                    (source,) = part.values()
                    self._write(folder, *self._read(part, source), projected.get("defaultMode", _DEFAULT_MODE))
            case _:
                raise ValueError(f"volume {volume['name']}: the executor does not know this kind: {sorted(volume)}")
        return folder, True

    def _read(self, volume: Manifest, source: Manifest) -> tuple[dict[str, bytes], dict[str, int]]:
        """The files of a ConfigMap or a Secret as they are to be, and the modes of single ones."""
        kind = "ConfigMap" if "configMap" in volume else "Secret"
        name = str(source.get("name") or source.get("secretName"))
        if source.get("optional") and self._lookup(kind, name) is None:
            return {}, {}
        files = files_of(self._find(kind, name))
        if "items" not in source:
            return files, {}
        modes = {item["path"]: item["mode"] for item in source["items"] if "mode" in item}
        missing = [item["key"] for item in source["items"] if item["key"] not in files]
        if missing:
            raise LookupError(f"{kind} {name} has no {', '.join(missing)}")
        return {item["path"]: files[item["key"]] for item in source["items"]}, modes

    def _find(self, kind: str, name: str) -> Manifest:
        manifest = self._lookup(kind, name)
        if manifest is None:
            raise LookupError(f"there is no {kind} {name}")
        return manifest

    def _write(self, folder: Path, files: Mapping[str, bytes], modes: Mapping[str, int], mode: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            bits = modes.get(name, mode)
            if self._group is not None:
                os.chown(path, 0, self._group)
                bits |= 0o040  # readable by the group, as kubelets make it
            path.chmod(bits)

    def _own(self, folder: Path) -> Path:
        """A folder that the pod may write to: anybody's, or the group's if it has one."""
        folder.mkdir(parents=True, exist_ok=True)
        if self._group is None:
            folder.chmod(0o777)
        else:
            os.chown(folder, 0, self._group)
            folder.chmod(0o2775)
        return folder


def group_of(pod: Mapping[str, Any]) -> int | None:
    """The group that a pod's volumes belong to."""
    group: int | None = pod.get("securityContext", {}).get("fsGroup")
    return group
