"""Settings of an RLX server."""

from __future__ import annotations

import hmac
import ipaddress
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surreal.rlx.pool.states import RewardReader, StateReader
from surreal.rlx.protocol.errors import DEFAULT_LIMITS, MAX_FRAME_BYTES, Limits, RlxServerError
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.metrics import MetricSink
from surreal.rlx.server.tokens import ClientTokens, Revocable

#: Gives what a server tells about itself, of values that JSON has.
StatusSource = Callable[[], Mapping[str, Any]]

#: RELAAX's.
DEFAULT_PORT = 7001

#: Bytes of a message in addition to its state: keys, a list of rewards, a histogram of ten thousand numbers.
_EXTRA_BYTES = 256 << 10
#: Bytes of a number, at most: in JSON, with sign, 17 digits, exponent, comma and some blanks.
_NUMBER_BYTES = 32


@dataclass(frozen=True)
class ServerSettings:
    """Address, limits and permissions of one server."""

    host: str = "127.0.0.1"  #: address to listen on; everything but loopback lets other machines in
    port: int = DEFAULT_PORT  #: TCP port, of WebSockets and HTTP too; 0: a free one
    #: let several servers of this machine share the port; the system spreads connections over them
    reuses_port: bool = False
    owner: str = ""  #: name of the run; only servers with the same owner share a port
    #: age at which a connection is closed at the next end of an episode, reply first, s; None: never
    timeout_s: float | None = None
    #: time without a whole request after which a connection is closed, s; None: never
    idle_timeout_s: float | None = 600.0
    #: sessions of one WebSocket open at the same time, >= 1; raising it lets a single client take more of the slots
    #: that all share
    max_connection_sessions: int = 64
    token: str | None = None  #: what `init` of any client may bring
    tokens: ClientTokens | None = (
        None  #: what `init` of each client may bring instead; without either, it needs nothing
    )
    #: where else web pages may come from, such as "https://example.org"; "*": from anywhere. Pages of this machine,
    #: and those of this server under a numeric address, always may.
    origins: tuple[str, ...] = ()
    #: limits on messages of clients; None: those of `message_limits` for the observation space
    limits: Limits | None = None
    admission: Admission = field(default_factory=Admission)  #: decides which sessions may be opened
    rewards: RewardReader = field(default_factory=RewardReader)  #: makes scalars of rewards
    is_exploiting: bool = False  #: whether all sessions exploit, whatever they ask for
    #: longest time for which clients may hold back a step until its reward is known, s; 0: none. Experience then has to
    #: go through `HeldSteps`.
    max_amend_s: float = 0.0
    tls: ssl.SSLContext | None = None  #: certificate and key; None: no TLS
    static_dir: Path | None = None  #: folder whose files are served over HTTP; None: none
    pages_dir: Path | None = None  #: another folder, served under `/app/`
    #: returns further entries of `/status.json`, which every client that reaches the port can read; called on the
    #: server's thread. None: no entries.
    status: StatusSource | None = None
    on_metric: MetricSink | None = None  #: takes clients' metrics, all of them under "client/"; None drops them

    @property
    def needs_token(self) -> bool:
        """Whether `init` must bring a token."""
        return self.token is not None or self.tokens is not None

    def admits(self, session: Revocable, token: str) -> bool:
        """Whether a session may begin with this token."""
        if self.tokens is not None and self.tokens.open(session, token):
            return True
        shared = self.token
        return shared is not None and hmac.compare_digest(token.encode(errors="replace"), shared.encode())

    def __post_init__(self) -> None:
        if self.max_connection_sessions < 1:
            raise ValueError(f"max_connection_sessions is {self.max_connection_sessions}; it must be >= 1")


def message_limits(
    reader: StateReader | None,
    max_bytes: int | None = None,
    max_items: int = DEFAULT_LIMITS.max_items,
    max_depth: int = DEFAULT_LIMITS.max_depth,
) -> Limits:
    """Return the limits on messages; a message longer than any state can be is refused before it arrives."""
    if max_bytes is None:
        numbers = None if reader is None else sum(math.prod(leaf.shape) for leaf in reader.spec.leaves)
        longest = DEFAULT_LIMITS.max_bytes if numbers is None else _EXTRA_BYTES + _NUMBER_BYTES * numbers
        max_bytes = min(longest, MAX_FRAME_BYTES)
    return Limits(max_bytes, max_items, max_depth)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_tls(certificate: Path, key: Path | None, authority: Path | None = None) -> ssl.SSLContext:
    """Load the TLS context of a server: its certificate chain, and its private key (None: in the same file). With the
    authorities that sign clients' certificates, each client must show one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise RlxServerError(f"no TLS with {certificate} and {key or certificate}: {error}") from error
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise RlxServerError(f"no client certificates with {authority}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
