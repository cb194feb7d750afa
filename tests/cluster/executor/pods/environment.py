"""The environment variables of a container, and the words of its command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.executor.manifests import Manifest, files_of
from tests.cluster.executor.pods.volumes import Lookup

#: $(NAME), or $$ for a single $.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]+)\)")
_SOURCES = {
    "configMapKeyRef": "ConfigMap",
    "secretKeyRef": "Secret",
    "configMapRef": "ConfigMap",
    "secretRef": "Secret",
}


def make_environment(
    container: Manifest, defaults: Mapping[str, str], fields: Mapping[str, str], lookup: Lookup
) -> dict[str, str]:
    """The variables of a container.

    Args:
        container: The container as written.
        defaults: What there is without a word of it: the image's, and the Services'.
        fields: What a `fieldRef` can name.
        lookup: Finds ConfigMaps and Secrets.

    Raises:
        LookupError: if something that it names is missing.
    """
    environment = dict(defaults)
    for source in container.get("envFrom", []):
        kind = "configMapRef" if "configMapRef" in source else "secretRef"
        files = _find(kind, source[kind], lookup)
        environment |= {source.get("prefix", "") + name: content.decode() for name, content in files.items()}
    for variable in container.get("env", []):
        if "valueFrom" in variable:
            value = _value(variable["valueFrom"], fields, lookup)
        else:
            value = expand([variable.get("value", "")], environment)[0]
        if value is not None:
            environment[variable["name"]] = value
    return environment


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Put variables in for $(NAME); names that nothing stands for remain as they are."""

    def put(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return [_REFERENCE.sub(put, word) for word in words]


def _value(source: Manifest, fields: Mapping[str, str], lookup: Lookup) -> str | None:
    ((kind, reference),) = source.items()
    if kind == "fieldRef":
        return fields[reference["fieldPath"]]
    if kind not in _SOURCES:
        raise ValueError(f"valueFrom: the executor does not know {kind}")
    files = _find(kind, reference, lookup)
    if reference["key"] in files:
        return files[reference["key"]].decode()
    if reference.get("optional"):
        return None
    raise LookupError(f"{_SOURCES[kind]} {reference['name']} has no {reference['key']}")


def _find(kind: str, reference: Mapping[str, Any], lookup: Lookup) -> dict[str, bytes]:
    manifest = lookup(_SOURCES[kind], reference["name"])
    if manifest is not None:
        return files_of(manifest)
    if reference.get("optional"):
        return {}
    raise LookupError(f"there is no {_SOURCES[kind]} {reference['name']}")


def pod_fields(metadata: Manifest, address: str, node: str) -> dict[str, str]:
    """What a `fieldRef` can name of a pod."""
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": node,
        "status.podIP": address,
        "status.podIPs": address,
    }
    for kind in ("labels", "annotations"):
        fields |= {f"metadata.{kind}['{name}']": text for name, text in metadata.get(kind, {}).items()}
    return fields
