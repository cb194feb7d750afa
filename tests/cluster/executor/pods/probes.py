"""Probes, which tell whether a container is started, alive and ready."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.cluster.executor.manifests import Manifest

PROBES = {"startup": "startupProbe", "liveness": "livenessProbe", "readiness": "readinessProbe"}


class Probe:
    """Attempts one after the other, and the verdict that they come to; an attempt's time limit is never shortened."""

    def __init__(self, spec: Manifest, now: float, pace: float) -> None:
        #: None before the first one.
        self.verdict: bool | None = None
        self._spec, self._pace, self._next, self._deadline = spec, pace, now, now
        self._attempt: subprocess.Popen[bytes] | None = None
        self._failures = 0

    def step(self, now: float, ask: Callable[[Manifest], subprocess.Popen[bytes]]) -> None:
        """Look at the current attempt, or start one that is due."""
        if self._attempt is None:
            if now >= self._next:
                self._next = now + self._spec.get("periodSeconds", 10) * self._pace
                self._deadline = now + self._spec.get("timeoutSeconds", 1)
                self._attempt = ask(self._spec)
            return
        status = self._attempt.poll()
        if status is None and now < self._deadline:
            return
        self.close()
        self._failures = 0 if status == 0 else self._failures + 1
        if self._failures in (0, self._spec.get("failureThreshold", 3)):
            self.verdict = not self._failures

    def close(self) -> None:
        """End the current attempt."""
        if self._attempt is not None:
            self._attempt.kill()
            self._attempt.wait()
            self._attempt = None
