"""Fresh passwords of a run as Secrets: `surreal k8s secret`. They are written once, and kept nowhere."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from surreal.distributed.connection.rights import ADMINISTRATOR, USERS
from surreal.distributed.server.certificates import make_certificates
from surreal.plugins.clusters.kubernetes.manifest import PART_LABEL, RUN_LABEL, check_namespace
from surreal.plugins.clusters.kubernetes.redis import TLS_SECRET
from surreal.plugins.clusters.kubernetes.source import Manifest

#: Users of Redis: those that `surreal redis --acl` makes.
REDIS_USERS = (*(user.name for user in USERS), ADMINISTRATOR)
_BYTES = 24
#: Redis servers that a certificate is for; the overlay `cluster` has six.
_SERVERS = 16


def make_secrets(run: str, namespace: str | None = None, *, has_tls: bool = False) -> list[Manifest]:
    """Make the Secrets of a run: a password for each user of Redis, the token of RLX clients, perhaps certificates.

    Args:
        run: its id.
        namespace: that it is in; None: `surreal-RUN`.
        has_tls: whether to make the certificates of its Redis servers.

    Raises:
        ConfigError: the namespace cannot be one, or there is no openssl.
    """
    space = check_namespace(namespace or f"surreal-{run}", "--namespace" if namespace else "RUN")
    passwords = {user: secrets.token_urlsafe(_BYTES) for user in REDIS_USERS}
    made = [
        _secret("surreal-redis", passwords, run, space),
        _secret("surreal-rlx", {"token": secrets.token_urlsafe(_BYTES)}, run, space),
    ]
    if has_tls:
        made.append({**_secret(TLS_SECRET, _make_certificates(), run, space), "type": "kubernetes.io/tls"})
    return made


def _make_certificates() -> dict[str, str]:
    """Certificate, key and authority of the run's Redis servers; nothing else can be signed with that authority."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder), [f"redis-{number}.redis" for number in range(_SERVERS)])
        files = {"tls.crt": made.server, "tls.key": made.server_key, "ca.crt": made.authority}
        return {name: path.read_text() for name, path in files.items()}


def _secret(name: str, data: dict[str, str], run: str, namespace: str) -> Manifest:
    labels = {PART_LABEL: "surreal", RUN_LABEL: run}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": data}
