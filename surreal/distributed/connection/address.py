"""Addresses of Redis servers, and the credentials that this process takes from its environment.

An address is `host:port` (the seed's `RedisClient('127.0.0.1:6060')`), `redis://`, `rediss://` (TLS, with certificates
as query arguments, `?ssl_ca_certs=/path/ca.pem`), `unix:///path`, `redis+cluster://host:port,host:port`, which names
some servers of a Redis Cluster, or `redis+sentinel://host:port,host:port/SERVICE`, which names Sentinels and the
service whose primary they know. The last two begin with `rediss+` for TLS. Credentials are read for an address without
user and password. They do not come as arguments, which `ps` would show, nor in addresses, which end up in files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url

from surreal.base.system.files import ADDRESS_VARIABLE, FILE, SECRETS_VARIABLE, USER_VARIABLE, read_secret, secret_of

DEFAULT_PORT = 6379
#: With "_FILE": the file that contains it.
PASSWORD_VARIABLE = "SURREAL_REDIS_PASSWORD"  # noqa: S105 - the name of a variable
#: Environment variables with files for TLS -> redis-py's options.
TLS_VARIABLES = {
    "SURREAL_REDIS_TLS_CA": "ssl_ca_certs",
    "SURREAL_REDIS_TLS_CERT": "ssl_certfile",
    "SURREAL_REDIS_TLS_KEY": "ssl_keyfile",
}
#: Variables that hide the user and the password from a child process.
WITHOUT_SECRETS = dict.fromkeys((USER_VARIABLE, SECRETS_VARIABLE, PASSWORD_VARIABLE, PASSWORD_VARIABLE + FILE), "")
_ADVICE = "check user, password, certificates"
_WITHHELD = (
    "a file names this address, and the password of the environment goes only to hosts that you name: "
    "if you trust it, name it with --redis or $SURREAL_REDIS"
)
_SCHEMES = ("redis://", "rediss://", "unix://")
_CLUSTER, _SENTINEL = "+cluster://", "+sentinel://"
_SENTINEL_PORT = 26379
#: Query arguments that are never shown.
_SECRETS = re.compile(r"((?:^|&)(?:ssl_)?password=)[^&]*")


class Credentials(NamedTuple):
    """The user, password and certificates that a process shows to a Redis server."""

    username: str | None = None
    password: str | None = None
    tls: Mapping[str, str] = {}  #: options of redis-py's TLS connections


class FoundAddress(str):
    """An address from a file, which a stranger may have written.

    `RedisClient` sends the user and the password of the environment there only if the user has named the same host.

    Args:
        given: the address that the user named, with `--redis`, or the address that led to the file; None: none.
    """

    __slots__ = ("_given",)
    _given: str | None

    def __new__(cls, text: str, given: str | None = None) -> FoundAddress:
        """Keep the address that the user named, also if another found address led here."""
        self = super().__new__(cls, text)
        self._given = given._given if isinstance(given, FoundAddress) else given
        return self

    def named(self, environ: Mapping[str, str]) -> list[str]:
        return (self._given or environ.get(ADDRESS_VARIABLE) or "").split()


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address."""

    shown: str  #: the address for messages and logs, with masked passwords
    connection_class: type[Any] = field(repr=False)  #: redis-py's connection class for the scheme
    options: dict[str, Any] = field(repr=False)  #: arguments of that class, secrets included; not part of the repr
    #: (host, port) of servers of a Redis Cluster that know the others, or of Sentinels; empty for a single server
    nodes: tuple[tuple[str, int], ...] = ()
    service: str | None = None  #: name under which Sentinels know the primary; None: `nodes` are servers of a cluster

    @property
    def is_open(self) -> bool:
        """Whether neither a password in the address nor the permissions of a socket file restrict access."""
        return not (self.options.get("password") or issubclass(self.connection_class, UnixDomainSocketConnection))

    @property
    def hosts(self) -> set[str]:
        """Names of its hosts; empty for a socket."""
        host = self.options.get("host")
        return {name.lower() for name in (host, *(node[0] for node in self.nodes)) if name}

    def with_credentials(self, credentials: Credentials) -> RedisAddress:
        """Add credentials; those in the address win."""
        named = {"username": credentials.username, "password": credentials.password}
        given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if issubclass(self.connection_class, SSLConnection):
            given |= credentials.tls
        return replace(self, options={**given, **self.options})


def resolve_address(
    text: str, environ: Mapping[str, str], run: str, *, username: str | None = None, password: str | None = None
) -> tuple[RedisAddress, str]:
    """Parse an address, and add the credentials of the environment unless access is restricted otherwise; users of this
    run come before those of all runs. Return advice for a server that refuses this process as well.

    Arguments are those of `parse_address`, whose errors it raises, also for a file with a secret that cannot be read.
    """
    parsed = parse_address(text, username=username, password=password)
    if not parsed.is_open:
        return parsed, _ADVICE
    credentials, advice = read_credentials(environ, run), _ADVICE
    if isinstance(text, FoundAddress):
        named = {host for each in text.named(environ) for host in parse_address(each).hosts}
        if not parsed.hosts <= named:
            advice = _WITHHELD if credentials.password else _ADVICE
            credentials = Credentials(tls=credentials.tls)
    return parsed.with_credentials(credentials), advice


def parse_address(text: str, *, username: str | None = None, password: str | None = None) -> RedisAddress:
    """Parse an address; raises `ValueError`, which masks the password, if it is not valid.

    Args:
        text: `host`, `host:port`, `[::1]:port`, `redis://`, `rediss://`, `unix://`, `redis+cluster://` or
            `redis+sentinel://` URL.
        username: ACL user; wins over the one in the address.
        password: wins over the one in the address.
    """
    if _CLUSTER in text or _SENTINEL in text:
        return _parse_several(text, username, password)
    url = text if "://" in text else f"redis://{text}"
    shown = _mask(url)
    if not url.startswith(_SCHEMES):
        raise ValueError(
            f"Redis address {shown!r} must be host:port, redis://, rediss://, unix:///path, redis+cluster:// or "
            "redis+sentinel://"
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
    given = {"username": username, "password": password}
    options |= {name: value for name, value in given.items() if value is not None}
    return RedisAddress(shown, connection_class, options)


def read_credentials(environ: Mapping[str, str], run: str) -> Credentials:
    """Read the credentials in the environment, those of this run first; raises `ValueError` for a bad file."""
    username = environ.get(USER_VARIABLE) or None
    tls = {}
    for variable, option in TLS_VARIABLES.items():
        if path := environ.get(variable):
            if not Path(path).is_file():
                raise ValueError(f"${variable} is {path}, which is not a file")
            tls[option] = path
    if (folder := environ.get(SECRETS_VARIABLE)) and username is not None:
        found = _password_file(Path(folder), username, run)
        return Credentials(found.name, read_secret(found, f"${SECRETS_VARIABLE}"), tls)
    return Credentials(username, secret_of(environ, PASSWORD_VARIABLE), tls)


def _password_file(folder: Path, user: str, run: str) -> Path:
    """Find the file of a user: for this run, for all runs, or for the only run in the folder."""
    for name in (f"{run}.{user}", user):
        if (folder / name).is_file():
            return folder / name
    others = sorted(folder.glob(f"*.{user}"))
    return others[0] if len(others) == 1 else folder / user


def _parse_several(text: str, username: str | None, password: str | None) -> RedisAddress:
    kind = _CLUSTER if _CLUSTER in text else _SENTINEL
    scheme, _, rest = text.partition(kind)
    if scheme not in ("redis", "rediss"):
        raise ValueError(f"Redis address {_mask(text)!r} must begin with redis{kind} or rediss{kind}")
    netloc, _, query = rest.partition("?")
    netloc, _, path = netloc.partition("/")
    user, at, hosts = netloc.rpartition("@")
    service, slash, db = path.partition("/")
    if kind == _CLUSTER:
        service, slash, db = "", "/" if path else "", path
    first, *others = (
        parse_address(
            f"{scheme}://{user}{at}{_with_port(host, kind)}{slash}{db}{'?' if query else ''}{query}",
            username=username,
            password=password,
        )
        for host in hosts.split(",")
    )
    if kind == _CLUSTER and first.options.get("db"):
        raise ValueError(f"Redis address {first.shown!r}: a cluster has only db 0")
    nodes = tuple((each.options["host"], each.options["port"]) for each in (first, *others))
    shown = f"{scheme}{kind}{','.join(f'[{host}]:{port}' if ':' in host else f'{host}:{port}' for host, port in nodes)}"
    if kind == _CLUSTER:
        return RedisAddress(shown, first.connection_class, first.options, nodes)
    if not service:
        raise ValueError(f"Redis address {shown!r} names no service; write {shown}/mymaster, as the Sentinels call it")
    return RedisAddress(f"{shown}/{service}", first.connection_class, first.options, nodes, service)


def _with_port(host: str, kind: str) -> str:
    """Add the default port of a Sentinel to a host without a port."""
    return f"{host}:{_SENTINEL_PORT}" if kind == _SENTINEL and host and re.search(r":\d+$", host) is None else host


def _mask(url: str) -> str:
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
