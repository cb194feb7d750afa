"""Tokens of the processes that hold a lease or a name in a run, and when such a token is void.

A token names its process: machine, pid, and start time, because pids are reused. A token is void if its process ran on
this machine and has ended. It is also void if its holder was silent for the length of its lease, by the clock of the
process that waits: when a clock is set back, Redis keeps a key for longer than requested.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from surreal.base.system.process import is_process_alive, machine_id, process_start
from surreal.base.values import json_object

#: Share of a lease by which a renewal moves its end at least; a smaller move is clock drift.
_RENEWED_SHARE = 0.1
#: Longest lease that a token may claim, s.
_LONGEST_LEASE_S = 3600.0


class Holder(NamedTuple):
    """The content of a token."""

    host: str
    pid: int
    lease_s: float  #: length of the lease without a renewal
    is_gone: bool  #: whether its process ran on this machine, and has ended

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def make_token(lease_s: float, **more: str) -> str:
    """Make a unique token of this process, for a lease of this length, s; `more` are further fields."""
    pid = os.getpid()
    fields = {"machine": machine_id(), "host": socket.gethostname(), "pid": pid, "began": process_start(pid)}
    return json.dumps(fields | {"lease_s": lease_s, "id": secrets.token_hex(8)} | more)


def holder_of(token: str, lease_s: float) -> Holder:
    """Parse a token; one without fields counts as another machine's, with a lease of `lease_s`."""
    data, given_s = json_object(token), lease_s
    try:
        machine, host, pid = str(data["machine"]), str(data["host"])[:200], int(data["pid"])
        began, lease_s = data.get("began"), float(data.get("lease_s", lease_s))
        if not 0.0 < lease_s <= _LONGEST_LEASE_S:
            raise ValueError(f"lease_s is {lease_s}")
    except (ValueError, KeyError, TypeError, OverflowError):
        return Holder("another machine", 0, given_s, is_gone=False)
    is_gone = machine == machine_id() and 0 < pid < 2**31 and not _is_alive(pid, began)
    return Holder(host, pid, lease_s, is_gone)


def _is_alive(pid: int, began: object) -> bool:
    now_began = process_start(pid)
    return is_process_alive(pid) and (None in (began, now_began) or began == now_began)


@dataclass(eq=False, repr=False)
class HolderWatch:
    """Decides when a lease that another process holds is void; one thread calls it repeatedly."""

    lease_s: float  #: length of a lease whose token does not name it, s
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._token = ""
        self._ends_s = self._silent_since_s = 0.0
        self._first_look_s: float | None = None
        self.waited_s = 0.0  #: between the first and the last call

    def is_void(self, token: str, left_ms: int) -> bool:
        """Whether the holder is gone, or was silent for its lease; Redis deletes the token in `left_ms`, < 0 never."""
        holder, now_s = holder_of(token, self.lease_s), self.clock()
        self._first_look_s = now_s if self._first_look_s is None else self._first_look_s
        self.waited_s = now_s - self._first_look_s
        ends_s = now_s + left_ms / 1000 if left_ms >= 0 else math.inf
        if token != self._token or ends_s > self._ends_s + _RENEWED_SHARE * holder.lease_s:
            self._token, self._ends_s, self._silent_since_s = token, ends_s, now_s
        return holder.is_gone or now_s - self._silent_since_s > holder.lease_s
