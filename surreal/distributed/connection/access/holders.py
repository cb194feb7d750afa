"""The tokens in Redis of the processes that hold a lease or a name in a run, and when such a token is void.

A token names its process: machine, id, and when the process began, since ids are used again. A token is void if its
process ran on this machine and has ended. It is also void if its holder has been silent for as long as its lease lasts,
by the clock of the process that waits: when a clock is set back, Redis keeps a key for longer than was asked.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from surreal.base.system.process import is_process_alive, machine_id, process_start

#: Part of a lease by which a renewal moves its end at the least; what moves it by less is a clock that drifts.
_RENEWED_SHARE = 0.1

#: A token that names a longer lease is not believed, s.
_LONGEST_LEASE_S = 3600.0


class Holder(NamedTuple):
    """The content of a token."""

    host: str
    pid: int
    lease_s: float  #: how long the lease lasts without a renewal
    is_gone: bool  #: whether its process ran on this machine, and has ended

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def make_token(lease_s: float, **more: str) -> str:
    """Make the token of this process, different from any other.

    Args:
        lease_s: how long a lease lasts that it does not renew, s.
        more: further fields.
    """
    pid = os.getpid()
    fields = {"machine": machine_id(), "host": socket.gethostname(), "pid": pid, "began": process_start(pid)}
    return json.dumps(fields | {"lease_s": lease_s, "id": secrets.token_hex(8)} | more)


def fields_of(token: str | bytes) -> dict[str, Any]:
    """The fields of a token, none if it is not one."""
    try:
        data = json.loads(token)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def holder_of(token: str, lease_s: float) -> Holder:
    """Read a token; one without fields counts as another machine's, with a lease of `lease_s`."""
    data, given_s = fields_of(token), lease_s
    try:
        machine, host, pid = str(data["machine"]), str(data["host"])[:200], int(data["pid"])
        began, lease_s = data.get("began"), float(data.get("lease_s", lease_s))
        if not 0.0 < lease_s <= _LONGEST_LEASE_S:
            raise ValueError(f"lease_s is {lease_s}")
    except (ValueError, KeyError, TypeError, OverflowError):
        lease_s = given_s
        return Holder("another machine", 0, lease_s, is_gone=False)
    is_gone = machine == machine_id() and 0 < pid < 2**31 and not _is_alive(pid, began)
    return Holder(host, pid, lease_s, is_gone)


def _is_alive(pid: int, began: object) -> bool:
    now_began = process_start(pid)
    return is_process_alive(pid) and (None in (began, now_began) or began == now_began)


class HolderWatch:
    """Decides when a lease that another process holds is void; one thread calls it again and again.

    Args:
        lease_s: length of the lease of a holder that does not say it, s.
        clock: seconds, monotonic.
    """

    def __init__(self, lease_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._token = ""
        self._ends_s = self._silent_since_s = 0.0
        self._first_look_s: float | None = None
        self.waited_s = 0.0  #: from the first look at a holder to the last

    def is_void(self, token: str, left_ms: int) -> bool:
        """Whether the holder need not be waited for: its process is gone, or was silent for as long as its lease lasts.

        Args:
            token: that stands in Redis now.
            left_ms: how long Redis will keep it, ms; negative: forever.
        """
        holder, now_s = holder_of(token, self._lease_s), self._clock()
        self._first_look_s = now_s if self._first_look_s is None else self._first_look_s
        self.waited_s = now_s - self._first_look_s
        ends_s = now_s + left_ms / 1000 if left_ms >= 0 else math.inf
        if token != self._token or ends_s > self._ends_s + _RENEWED_SHARE * holder.lease_s:
            self._token, self._ends_s, self._silent_since_s = token, ends_s, now_s
        return holder.is_gone or now_s - self._silent_since_s > holder.lease_s
