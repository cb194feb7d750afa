"""Probes: commands and requests that tell whether a container is started, alive and ready.

A probe is a process as well where Kubernetes makes a connection: it runs in the router's network, as kubelets ask from
the node, and cannot hold up the cluster.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.cluster.executor.manifests import Manifest
from tests.cluster.executor.network.router import Router
from tests.cluster.executor.processes import end, entering

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])))"
#: Redirections count as an answer; a status below 400 is a success.
_REQUEST = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]))
connection.request("GET", sys.argv[3])
sys.exit(not 200 <= connection.getresponse().status < 400)
"""


class Prober(Protocol):
    """What starts one attempt of a probe."""

    def __call__(self, spec: Manifest) -> subprocess.Popen[bytes]: ...


class Probe:
    """Attempts one after the other, and the verdict that they come to.

    Args:
        spec: The probe as written.
        start: Starts an attempt.
        now: When the container started, in seconds of any clock.
        pace: What a second of the probe's delay and period takes, in s; its timeout is never shortened.
    """

    def __init__(self, spec: Manifest, start: Prober, now: float, pace: float) -> None:
        #: None before the first one.
        self.verdict: bool | None = None
        self._spec, self._start, self._pace = spec, start, pace
        self._next = now + spec.get("initialDelaySeconds", 0) * pace
        self._attempt: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._run = 0  # successes in a row, or failures as a negative number

    def step(self, now: float) -> None:
        """Look after the attempt that runs, or start one that is due."""
        if self._attempt is None:
            if now >= self._next:
                self._next = now + self._spec.get("periodSeconds", 10) * self._pace
                self._deadline = now + self._spec.get("timeoutSeconds", 1)
                try:
                    self._attempt = self._start(self._spec)
                except ProcessLookupError:
                    return  # the container has just ended
            return
        status = self._attempt.poll()
        if status is None and now < self._deadline:
            return
        self.close()
        self._count(is_success=status == 0)

    def close(self) -> None:
        """End the attempt that runs."""
        if self._attempt is not None:
            end(self._attempt)
            self._attempt = None

    def _count(self, *, is_success: bool) -> None:
        self._run = max(self._run, 0) + 1 if is_success else min(self._run, 0) - 1
        if self._run >= self._spec.get("successThreshold", 1):
            self.verdict = True
        elif -self._run >= self._spec.get("failureThreshold", 3):
            self.verdict = False


def network_attempt(router: Router, spec: Manifest, address: str, ports: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """Start an attempt of a probe that asks over the network (tcpSocket, httpGet).

    Raises:
        ValueError: for a probe of another kind.
    """
    if "tcpSocket" in spec:
        asked, program, path = spec["tcpSocket"], _CONNECT, []
    elif "httpGet" in spec:
        asked, program, path = spec["httpGet"], _REQUEST, [spec["httpGet"].get("path", "/")]
    else:
        raise ValueError(f"probe: the executor does not know its kind: {', '.join(spec)}")
    port = asked["port"] if isinstance(asked["port"], int) else ports[asked["port"]]
    words: Sequence[str] = (sys.executable, "-I", "-S", "-c", program, asked.get("host", address), str(port), *path)
    return subprocess.Popen(
        [*entering(router.pid, "net"), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
