"""Environment variables and volumes of containers, from the cluster's objects; volumes are folders of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.cluster.executor.manifests import Manifest, files_of

#: $(NAME), or $$ for a single $.
_REFERENCE = re.compile(r"\$\$|\$\([^)]+\)")
#: How a pod finds an object of its namespace: kind and name.
Lookup = Callable[[str, str], Manifest | None]


def find_files(kind: str, reference: Manifest, lookup: Lookup) -> dict[str, bytes]:
    """The files of a ConfigMap or Secret; the pod waits after the LookupError about a missing one."""
    name = reference.get("name") or reference["secretName"]
    manifest = lookup(kind, name)
    if manifest is None:
        if reference.get("optional"):
            return {}
        raise LookupError(f"there is no {kind} {name}")
    files = files_of(manifest)
    return {each["path"]: files[each["key"]] for each in reference["items"]} if "items" in reference else files


def make_environment(container: Manifest, fields: Mapping[str, str], lookup: Lookup) -> dict[str, str]:
    """The variables of a container, where `fields` is what a `fieldRef` can name."""
    environment: dict[str, str] = {}
    for source in container.get("envFrom", []):
        files = find_files("ConfigMap", source["configMapRef"], lookup)
        environment |= {name: content.decode() for name, content in files.items()}
    for variable in container.get("env", []):
        if "valueFrom" in variable:
            environment[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            (environment[variable["name"]],) = expand([variable.get("value", "")], environment)
    return environment


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Replace $(NAME) by variables; unknown names remain as they are."""
    known = {"$$": "$", **{f"$({name})": value for name, value in environment.items()}}
    return [_REFERENCE.sub(lambda match: known.get(match[0], match[0]), word) for word in words]


def make_volume(volume: Manifest, folder: Path, claims: Path, group: int | None, lookup: Lookup) -> tuple[Path, bool]:
    """Make a volume, in the pod's `folder` or among its `claims`; returns where, and whether it is read-only."""
    folder /= volume["name"]
    match volume:
        case {"configMap": source} | {"secret": source}:
            kind = "Secret" if "secret" in volume else "ConfigMap"
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in find_files(kind, source, lookup).items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                # The group may read it, as kubelets make it.
                path.chmod(source.get("defaultMode", 0o644) | (0o040 if group is not None else 0))
                os.chown(path, 0, group or 0)
            return folder, True
        case {"persistentVolumeClaim": {"claimName": name}}:
            if lookup("PersistentVolumeClaim", name) is None:
                raise LookupError(f"there is no PersistentVolumeClaim {name}")
            folder = claims / name
        case {"emptyDir": _}:
            pass
        case _:
            raise ValueError(f"volume {volume['name']}: the executor does not know this kind: {sorted(volume)}")
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, 0, group or 0)
    folder.chmod(0o777 if group is None else 0o2775)
    return folder, False
