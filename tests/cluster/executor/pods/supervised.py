"""One container of a pod over all its lives: probed, restarted with back-off, and stopped with grace."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tests.cluster.executor.manifests import Manifest
from tests.cluster.executor.pods.container import Container
from tests.cluster.executor.pods.probes import Probe
from tests.cluster.executor.processes import end

#: As kubelets do it: the first restart at once, then after 10 s, 20 s, ... 300 s, and from the beginning once the
#: container has run for 10 min.
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S, _FORGIVEN_AFTER_S = 10.0, 300.0, 600.0
_PROBES = {"startup": "startupProbe", "liveness": "livenessProbe", "readiness": "readinessProbe"}


class Asking(Protocol):
    """What starts an attempt of a probe, or a hook, of a container."""

    def __call__(self, spec: Manifest, container: Container) -> subprocess.Popen[bytes]: ...


class Means(NamedTuple):
    """What a supervised container needs of its pod.

    Args:
        make: Starts the container.
        ask: Starts one attempt of a probe.
        say: Takes note of what happens.
        pace: What a second of waiting in a manifest takes, in s.
        grace_s: How long it may take to end by itself; never shortened.
        policy: The pod's restart policy: Always, OnFailure or Never.
    """

    make: Callable[[Manifest], Container]
    ask: Asking
    say: Callable[[str], None]
    pace: float
    grace_s: float
    policy: str


class Supervised:
    """A container that the pod's restart policy keeps alive.

    Args:
        spec: The container as written.
        means: What it needs.
        now: In seconds of any clock.
    """

    def __init__(self, spec: Manifest, means: Means, now: float) -> None:
        self.restarts = 0
        #: The status of its end, once it is not to run again.
        self.final_status: int | None = None
        self.container: Container | None = None
        self._spec, self._means = spec, means
        self._probes: dict[str, Probe] = {}
        self._start_at, self._started_at = now, now
        self._backoff_s = 0.0
        self._kill_at: float | None = None
        self._hook: subprocess.Popen[bytes] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it runs, has started and says that it is ready."""
        if self.container is None or self._kill_at is not None or not self.container.has_begun():
            return False
        return all(self._probes[name].verdict for name in ("startup", "readiness") if name in self._probes)

    def step(self, now: float) -> None:
        """Do what is due."""
        if self.container is None:
            if self.final_status is None and now >= self._start_at:
                self._start(now)
            return
        status = self.container.exit_status()
        if status is not None:
            self._ended(status, now)
        elif self._kill_at is not None:
            self._see_off(now)
        elif self.container.has_begun():
            self._probe(now)

    def stop(self, now: float, grace_s: float | None = None) -> None:
        """Begin to end it: its hook, SIGTERM, and SIGKILL when the grace is over; without any grace, SIGKILL.

        It does not start again by itself.
        """
        if self.container is None:
            self.final_status = self.final_status or 0
        elif self._kill_at is None:
            self._begin_end(now, self._means.grace_s if grace_s is None else grace_s)
        self._means = self._means._replace(policy="Never")

    def close(self) -> None:
        """Kill it, and what was started beside it."""
        self._end_helpers()
        if self.container is not None:
            self.container.kill()
            self.container = None

    def _start(self, now: float) -> None:
        self.container = self._means.make(self._spec)
        self._started_at, self._kill_at = now, None
        ask = partial(self._means.ask, container=self.container)
        for name, field in _PROBES.items():
            if field in self._spec:
                self._probes[name] = Probe(self._spec[field], ask, now, self._means.pace)

    def _probe(self, now: float) -> None:
        startup = self._probes.get("startup")
        has_started = startup is None or startup.verdict
        for name in ("liveness", "readiness") if has_started else ("startup",):
            if name not in self._probes:
                continue
            probe = self._probes[name]
            was = probe.verdict
            probe.step(now)
            if probe.verdict is not was:
                self._means.say(f"{self._spec['name']}: {name} is {str(probe.verdict).lower()}")
            if name != "readiness" and probe.verdict is False:
                self._begin_end(
                    now, self._spec[_PROBES[name]].get("terminationGracePeriodSeconds", self._means.grace_s)
                )
                return

    def _begin_end(self, now: float, grace_s: float) -> None:
        assert self.container is not None
        self._kill_at = now + grace_s
        if grace_s == 0 or not self.container.has_begun():
            self.container.kill()
            return
        hook = self._spec.get("lifecycle", {}).get("preStop")
        if hook is None:
            self.container.send(signal.SIGTERM)
            return
        try:
            self._hook = self._means.ask(hook, self.container)
        except ProcessLookupError:
            return  # it has just ended

    def _see_off(self, now: float) -> None:
        assert self.container is not None and self._kill_at is not None
        if now >= self._kill_at:
            self._means.say(f"{self._spec['name']}: killed, its grace is over")
            self.container.kill()
            self._kill_at = float("inf")
        elif self._hook is not None and self._hook.poll() is not None:
            self._end_helpers()
            self.container.send(signal.SIGTERM)

    def _ended(self, status: int, now: float) -> None:
        self._means.say(f"{self._spec['name']}: ended with status {status}")
        self.close()
        if self._means.policy == "Never" or (self._means.policy == "OnFailure" and status == 0):
            self.final_status = status
            return
        if now - self._started_at >= _FORGIVEN_AFTER_S * self._means.pace:
            self._backoff_s = 0.0
        self._start_at = now + self._backoff_s * self._means.pace
        self._backoff_s = min(max(2 * self._backoff_s, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
        self.restarts += 1

    def _end_helpers(self) -> None:
        for probe in self._probes.values():
            probe.close()
        self._probes.clear()
        if self._hook is not None:
            end(self._hook)
            self._hook = None
