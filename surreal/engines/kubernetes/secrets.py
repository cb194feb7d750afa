"""Fresh passwords of a run as Secrets: `surreal k8s secret`. They are written once, and kept nowhere."""

from __future__ import annotations

import secrets

from surreal.distributed.connection.access.rights import ADMINISTRATOR, USERS
from surreal.engines.kubernetes.manifest import PART_LABEL, RUN_LABEL, check_namespace
from surreal.engines.kubernetes.source import Manifest

#: Users of Redis: those that `surreal redis --acl` makes.
REDIS_USERS = (*(user.name for user in USERS), ADMINISTRATOR)
_BYTES = 24


def make_secrets(run: str, namespace: str | None = None) -> list[Manifest]:
    """Make the Secrets of a run: a password for each user of Redis, and the token of RLX clients.

    Args:
        run: its id.
        namespace: that it is in; None: `surreal-RUN`.

    Raises:
        ConfigError: the namespace cannot be one.
    """
    space = check_namespace(namespace or f"surreal-{run}", "--namespace" if namespace else "RUN")
    passwords = {user: secrets.token_urlsafe(_BYTES) for user in REDIS_USERS}
    return [
        _secret("surreal-redis", passwords, run, space),
        _secret("surreal-rlx", {"token": secrets.token_urlsafe(_BYTES)}, run, space),
    ]


def _secret(name: str, data: dict[str, str], run: str, namespace: str) -> Manifest:
    labels = {PART_LABEL: "surreal", RUN_LABEL: run}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": data}
