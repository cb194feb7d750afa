"""Addresses of Redis servers: what a user may write, and what redis-py's connections take.

`host:port` (the seed's `RedisClient('127.0.0.1:6060')`), `redis://`, `rediss://` (TLS; certificates as redis-py's query
arguments, `?ssl_ca_certs=/path/ca.pem`), `unix:///path`, and for a Redis Cluster `redis+cluster://host:port,host:port`
(or `rediss+cluster://`), which names some of its servers. Used by `RedisClient` and by `surreal redis`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url

from surreal.distributed.connection.access.credentials import Credentials

DEFAULT_PORT = 6379
_SCHEMES = ("redis://", "rediss://", "unix://")
_CLUSTER = "+cluster://"
#: Query arguments that are secrets: never shown.
_SECRETS = re.compile(r"((?:^|&)(?:ssl_)?password=)[^&]*")


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address.

    Attributes:
        shown: the address for messages and logs: passwords are masked.
        connection_class: redis-py's connection class for the scheme.
        options: arguments of that class, secrets included; not part of the repr.
        nodes: (host, port) of servers of a Redis Cluster to ask where the others are; empty for a single server.
    """

    shown: str
    connection_class: type[Any] = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    nodes: tuple[tuple[str, int], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether neither a password in it nor, as of a socket, the permissions of a file say who may come there."""
        return not (self.has_password or issubclass(self.connection_class, UnixDomainSocketConnection))

    @property
    def has_password(self) -> bool:
        """Whether a password stands in it."""
        return bool(self.options.get("password"))

    @property
    def hosts(self) -> set[str]:
        """Names of its hosts; empty for a socket."""
        host = self.options.get("host")
        return {name.lower() for name in (host, *(node[0] for node in self.nodes)) if name}

    def with_credentials(self, credentials: Credentials) -> RedisAddress:
        """The same for whoever has these; what stands in the address wins."""
        named = {"username": credentials.username, "password": credentials.password}
        given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if issubclass(self.connection_class, SSLConnection):
            given |= credentials.tls
        return replace(self, options={**given, **self.options})


def parse_address(text: str, *, username: str | None = None, password: str | None = None) -> RedisAddress:
    """Read an address.

    Args:
        text: `host`, `host:port`, `[::1]:port`, `redis://`, `rediss://`, `unix://` or `redis+cluster://` URL.
        username: ACL user; wins over the one in the address.
        password: wins over the one in the address.

    Raises:
        ValueError: with the address (password masked) and what is wrong with it.
    """
    if _CLUSTER in text:
        return _parse_cluster(text, username, password)
    url = text if "://" in text else f"redis://{text}"
    shown = _mask(url)
    if not url.startswith(_SCHEMES):
        raise ValueError(
            f"Redis address {shown!r} must be host:port, redis://, rediss://, unix:///path or redis+cluster://"
        )
    try:
        parts = urlsplit(url)
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        port = parts.port
    except ValueError as error:
        raise ValueError(f"Redis address {shown!r} is not valid: {_without_secrets(error, url)}") from None
    connection_class = options.pop("connection_class", Connection)
    if parts.scheme == "unix":
        if not parts.path or (parts.hostname is not None and "@" not in parts.netloc):
            raise ValueError(f"Redis address {shown!r} needs an absolute path: unix:///path/to/redis.sock")
    else:
        if not parts.hostname:
            raise ValueError(f"Redis address {shown!r} has no host; write host:port")
        options.setdefault("port", DEFAULT_PORT)
        if port == 0:
            raise ValueError(f"Redis address {shown!r} has port 0; it must be 1-65535")
    if username is not None:
        options["username"] = username
    if password is not None:
        options["password"] = password
    return RedisAddress(shown, connection_class, options)


def _parse_cluster(text: str, username: str | None, password: str | None) -> RedisAddress:
    scheme, _, rest = text.partition(_CLUSTER)
    netloc, slash, path = rest.partition("/")
    netloc, question, query = (netloc, slash, path) if slash else netloc.partition("?")
    user, at, hosts = netloc.rpartition("@")
    first, *others = (
        parse_address(f"{scheme}://{user}{at}{host}{question}{query}", username=username, password=password)
        for host in hosts.split(",")
    )
    if scheme not in ("redis", "rediss") or first.options.get("db"):
        raise ValueError(
            f"Redis address {first.shown!r}: a cluster is redis+cluster:// or rediss+cluster://, with db 0"
        )
    nodes = tuple((each.options["host"], each.options["port"]) for each in (first, *others))
    shown = f"{scheme}{_CLUSTER}{','.join(f'{host}:{port}' for host, port in nodes)}"
    return RedisAddress(shown, first.connection_class, first.options, nodes)


def _mask(url: str) -> str:
    """The address as it may be printed: the password of the user part and of the query are replaced."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return re.sub(r"//[^/]*@", "//***@", _SECRETS.sub(r"\1***", url))
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}" if ":" in user else f"{user}@{host}"
    shown = urlunsplit((parts.scheme, netloc, parts.path, _SECRETS.sub(r"\1***", parts.query), ""))
    # urlunsplit drops the empty authority of unix:///path for schemes it does not know.
    return re.sub(r"^unix:/(?!//)/*", "unix:///", shown) if parts.scheme == "unix" and not netloc else shown


def _without_secrets(error: Exception, url: str) -> str:
    message = str(error)
    password = urlsplit(url).password if "[" not in url else None
    return message.replace(password, "***") if password else message
