"""The Redis of a run on Kubernetes, and its secrets."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from surreal.base.errors import ConfigError
from surreal.config import Config
from surreal.distributed.connection.cluster import PASSWORD_VARIABLE, USER_VARIABLE
from surreal.distributed.connection.rights import ADMINISTRATOR, USERS
from surreal.plugins.clusters.kubernetes.manifest import (
    PART_LABEL,
    RUN_LABEL,
    Manifest,
    check_namespace,
    config_map,
    containers,
    find,
    mount,
    pod_name,
    pod_template,
)
from surreal.plugins.clusters.redis.certificates import make_certificates

#: Users of Redis: those that `surreal redis --acl` makes.
REDIS_USERS = (*(user.name for user in USERS), ADMINISTRATOR)
_BYTES = 24
#: Number of Redis servers in a certificate; the overlay `cluster` has six.
_SERVERS = 16


def make_secrets(run: str, namespace: str | None = None, *, has_tls: bool = False) -> list[Manifest]:
    """Make the Secrets of a run: a password for each user of Redis, the token of RLX clients, perhaps certificates.

    Without a namespace, they are in `surreal-RUN`.
    """
    space = check_namespace(namespace or f"surreal-{run}", "--namespace" if namespace else "RUN")
    labels = {PART_LABEL: "surreal", RUN_LABEL: run}

    def secret(name: str, data: dict[str, str], kind: str = "Opaque") -> Manifest:
        metadata = {"name": name, "namespace": space, "labels": dict(labels)}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "stringData": data}

    made = [
        secret("surreal-redis", {user: secrets.token_urlsafe(_BYTES) for user in REDIS_USERS}),
        secret("surreal-rlx", {"token": secrets.token_urlsafe(_BYTES)}),
    ]
    if has_tls:
        with tempfile.TemporaryDirectory() as folder:  # the authority's key is discarded
            found = make_certificates(Path(folder), [f"redis-{number}.redis" for number in range(_SERVERS)])
            files = {"tls.crt": found.server, "tls.key": found.server_key, "ca.crt": found.authority}
            texts = {name: path.read_text() for name, path in files.items()}
        made.append(secret(TLS_SECRET, texts, "kubernetes.io/tls"))
    return made


_PORT = 6379
_SENTINEL, _SENTINEL_PORT = "+sentinel://", 26379
#: The Secret with tls.crt, tls.key and ca.crt of the run's Redis servers.
TLS_SECRET = "surreal-redis-tls"  # noqa: S105 - the name of one
_TLS_FOLDER = "/run/secrets/redis-tls"
#: Path of the certificate that processes trust, and the variable with its path.
_CA_FOLDER, _CA_FILE = "/run/secrets/redis-ca", "ca.crt"
_CA_VARIABLE = "SURREAL_REDIS_TLS_CA"
#: Volume with the password of a process; containers with it connect to Redis.
_PASSWORD_VOLUME, _PASSWORD_FOLDER = "redis", "/run/secrets/surreal"
_USER_VARIABLE = "SURREAL_REDIS_USER"


def own_address(*, has_tls: bool) -> str:
    """Return the address of the run's first Redis server."""
    return f"{'rediss' if has_tls else 'redis'}://redis-0.redis:{_PORT}"


def own_shards(manifests: list[Manifest], config: Config, *, has_tls: bool) -> list[str]:
    """Return the settings that spread the experience over all Redis servers of a run."""
    servers = find(manifests, "StatefulSet", "redis")
    count = 1 if servers is None else int(servers["spec"]["replicas"])
    if count == 1 or config.has_parameter_servers or config.redis.replay_address is not None:
        return []
    scheme = "rediss://" if has_tls else ""
    return [f"redis.replay_address=[{', '.join(f'{scheme}redis-{number}.redis:{_PORT}' for number in range(count))}]"]


def use_tls(manifests: list[Manifest]) -> dict[str, str]:
    """Turn on TLS in the run's Redis servers, and return the environment variables that processes need."""
    servers = find(manifests, "StatefulSet", "redis")
    if servers is None:
        raise ConfigError("--tls needs the StatefulSet redis, which the overlay leaves out", key="--tls")
    mount(servers, "redis-tls", {"secret": {"secretName": TLS_SECRET, "defaultMode": 0o440}}, _TLS_FOLDER)
    (server,) = containers(servers)
    server["args"] = [*server["args"], f"--tls-cert={_TLS_FOLDER}/tls.crt", f"--tls-key={_TLS_FOLDER}/tls.key"]
    items = [{"key": _CA_FILE, "path": _CA_FILE}]
    return _trust(manifests, {"secret": {"secretName": TLS_SECRET, "defaultMode": 0o440, "items": items}})


def use_other(manifests: list[Manifest], address: str, user: str | None) -> list[Manifest]:
    """Remove the run's Redis server, and allow connections to another one.

    With a `user`, all processes are this user of Redis, whose password the Secret has under its name.
    """
    parts = urlsplit(address if "://" in address else f"redis://{address}")
    if parts.scheme == "unix":
        raise ConfigError(f"--redis is {address}: a pod cannot reach a socket of this machine", key="--redis")
    if "@" in parts.netloc:
        raise ConfigError(
            "--redis has a user or password; use --redis-user, and put the password into the Secret surreal-redis",
            key="--redis",
        )
    if (policy := find(manifests, "NetworkPolicy", "from-run-to-redis")) is not None:
        default = _SENTINEL_PORT if _SENTINEL in address else _PORT
        given = (server.rpartition(":") for server in parts.netloc.split(","))
        ports = {int(port) if colon and port.isdigit() else default for _, colon, port in given}
        if _SENTINEL in address:
            ports.add(_PORT)  # of the primary that they name
        policy["spec"]["egress"] = [{"ports": [{"protocol": "TCP", "port": port} for port in sorted(ports)]}]
    kept = [each for each in manifests if pod_name(each) != "redis"]
    if user is not None:
        for manifest in kept:
            for variable in (each for container in containers(manifest) for each in container.get("env", ())):
                if variable["name"] == _USER_VARIABLE:
                    variable["value"] = user
                    for volume in manifest["spec"]["template"]["spec"]["volumes"]:
                        if volume["name"] == _PASSWORD_VOLUME:
                            volume["secret"]["items"] = [{"key": user, "path": "password"}]
    return kept


def use_sentinel_user(manifests: list[Manifest], address: str, user: str | None) -> dict[str, str]:
    """Log all processes in to Sentinels as a user, and return the environment variables that they need.

    The password is the key `sentinel` of the Secret. None: the Sentinels want no password.
    """
    if user is None:
        return {}
    if _SENTINEL not in address:
        raise ConfigError(
            f"--redis-sentinel-user is for Sentinels, but --redis is {address}; write redis+sentinel://",
            key="--redis-sentinel-user",
        )
    for manifest in manifests:
        for volume in (pod_template(manifest) or {"spec": {}})["spec"].get("volumes", ()):
            if volume["name"] == _PASSWORD_VOLUME:
                volume["secret"]["items"].append({"key": "sentinel", "path": "sentinel"})
    return {USER_VARIABLE: user, f"{PASSWORD_VARIABLE}_FILE": f"{_PASSWORD_FOLDER}/sentinel"}


def trust_file(manifests: list[Manifest], path: Path, address: str) -> dict[str, str]:
    """Make all processes trust a certificate authority, and return the environment variables that they need."""
    if not address.startswith("rediss"):
        raise ConfigError(f"--redis-ca is for TLS, but --redis is {address}; write rediss://", key="--redis-ca")
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--redis-ca: {path} cannot be read as PEM: {error}", key="--redis-ca") from error
    manifests.append(config_map("redis-ca", {_CA_FILE: text}))
    return _trust(manifests, {"configMap": {"name": "redis-ca"}})


def _trust(manifests: list[Manifest], volume: dict[str, Any]) -> dict[str, str]:
    for manifest in manifests:
        mounted = [each["name"] for each in containers(manifest) for each in each.get("volumeMounts", ())]
        if _PASSWORD_VOLUME in mounted:
            mount(manifest, "redis-ca", volume, _CA_FOLDER)
    return {_CA_VARIABLE: f"{_CA_FOLDER}/{_CA_FILE}"}
