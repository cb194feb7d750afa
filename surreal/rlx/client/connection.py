"""The connection of a client, what may go wrong with it, and the wait between attempts to connect.

RlxError
`-- AgentProxyException             any failure
    |-- AgentProxyReplyError        the server answered `error`; the connection stays open
    `-- AgentProxyConnectionError   the connection is lost, or no answer came in time: connect again
"""

from __future__ import annotations

import logging
import os
import random
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from surreal.rlx.client.transport import Address, Transport, open_transport
from surreal.rlx.protocol.codec import decode
from surreal.rlx.protocol.errors import RlxError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0


class AgentProxyException(RlxError):  # noqa: N818 - RELAAX's name
    """An agent could not be asked."""


class AgentProxyReplyError(AgentProxyException):
    """The server answered with an error, whose message this exception has. The connection stays open."""


class AgentProxyConnectionError(AgentProxyException):
    """There is no connection, it was lost, or the answer did not come in time; it is closed now."""


class ProxyConnection:
    """One connection; a background thread may use it as well."""

    def __init__(
        self, address: Address, timeout_s: float, connect_timeout_s: float, ssl_context: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.connect_timeout_s = connect_timeout_s
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        self._transport: Transport | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._transport is not None

    def _open(self) -> None:
        """Connect, in one attempt; raises `AgentProxyConnectionError` if that will pass, else `AgentProxyException`."""
        deadline = time.monotonic() + self.connect_timeout_s
        try:
            self._transport = open_transport(self.address, deadline, ssl_context=self._ssl_context)
        except ssl.SSLCertVerificationError as error:
            raise AgentProxyException(f"the certificate of {self.address} is not accepted: {error}") from error
        except OSError as error:
            raise AgentProxyConnectionError(f"no connection to {self.address}: {error}") from error
        except RlxError as error:
            raise AgentProxyException(str(error)) from error

    def close(self) -> None:
        """Close the connection; with `rate_hz`, the next `update` opens another one."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def exchange(self, payload: bytes) -> dict[str, Any]:
        """Send an encoded request and return its reply. After a failure in between, the connection is unusable."""
        with self._lock:
            return self._exchange_alone(payload)

    def _exchange_alone(self, payload: bytes) -> dict[str, Any]:
        transport = self._transport
        if transport is None:
            raise AgentProxyConnectionError(f"not connected to {self.address}")
        deadline = time.monotonic() + self.timeout_s
        try:
            transport.send(payload, deadline)
            reply = decode(transport.receive(deadline))
        except TimeoutError as error:
            self.close()
            raise AgentProxyConnectionError(f"{self.address} did not answer within {self.timeout_s:g} s") from error
        except OSError as error:
            self.close()
            raise AgentProxyConnectionError(f"the connection to {self.address} is lost: {error}") from error
        except RlxError as error:
            self.close()
            raise AgentProxyException(
                f"{self.address} answers with something that is not an RLX message: {error}"
            ) from error
        except BaseException:
            # The answer to this request would be taken for the answer to the next.
            self.close()
            raise
        if "response" not in reply:
            self.close()
            raise AgentProxyException(f"{self.address} answers without a `response`: {sorted(reply)}")
        if reply["response"] == "error":
            raise AgentProxyReplyError(str(reply.get("message", "the server gives no reason")))
        return reply


def make_context(authority: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Make a client's TLS context from files, by default those of `SURREAL_RLX_TLS_CA`, `_CERT` and `_KEY`."""
    known = (os.environ.get(f"SURREAL_RLX_TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
    authority, certificate, key = (
        path or other for path, other in zip((authority, certificate, key), known, strict=True)
    )
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise AgentProxyException(f"the certificates in {authority} cannot be read: {error}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            named = " and ".join(path for path in (certificate, key) if path is not None)
            raise AgentProxyException(f"the certificate in {named} cannot be used: {error}") from error
    return context


def retrying(attempts: int, action: Callable[[], T], *, rng: random.Random, stop: threading.Event | None = None) -> T:
    """Call a function that needs a connection, at most `attempts` (>= 1) times, while the connection is lost; then, it
    raises `AgentProxyConnectionError`. Any other failure of the action is raised at once.

    `rng` jitters the waits between the attempts, so that clients that were dropped together return one by one; `stop`
    ends them.
    """
    if attempts < 1:
        raise ValueError(f"the number of attempts is {attempts}; it must be >= 1")
    waiting = stop or threading.Event()
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except AgentProxyConnectionError as error:
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (attempt - 1)) * rng.uniform(0.5, 1.0)
            if attempt == attempts or waiting.is_set():
                raise
            logger.info("attempt %d of %d failed, the next in %.1f s: %s", attempt, attempts, wait_s, error)
            if waiting.wait(wait_s):
                raise
    raise AssertionError("unreachable")
