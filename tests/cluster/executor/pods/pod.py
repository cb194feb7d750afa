"""A pod: its network, its volumes, and one container over all its lives.

The container is probed, restarted with back-off, and stopped with grace.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.cluster.executor.manifests import Key, Manifest
from tests.cluster.executor.network.policies import Endpoint
from tests.cluster.executor.network.router import Router, Sandbox
from tests.cluster.executor.pods.container import Container, engine_options, read_log
from tests.cluster.executor.pods.objects import Lookup, make_environment, make_volume
from tests.cluster.executor.pods.probes import PROBES, Probe

#: As kubelets do it: the first restart at once, then after 10 s, 20 s, ... 300 s.
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 300.0
#: A redirection is followed, and an answer of 400 and above is a failure.
_REQUEST = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"


class Place(NamedTuple):
    """Where a pod runs, and what it has of its cluster; `pace` is as in `Cluster`."""

    router: Router
    folder: Path
    claims: Path
    node: str
    address: str
    label: str
    lookup: Lookup
    pace: float
    say: Callable[[str], None]


class Pod:
    """A pod from its first moment to its last; `now` is in seconds of any clock, and `template` a digest."""

    def __init__(self, key: Key, manifest: Manifest, owner: Key, template: str, place: Place, now: float) -> None:
        self.key, self.name, self.owner, self.template, self.place = key, key.name, owner, template, place
        self._labels, spec = manifest.get("metadata", {}).get("labels", {}), manifest["spec"]
        self._spec: Manifest = spec
        (self._main,) = spec["containers"]
        self.is_terminating = self.is_gone = False
        self.restarts, self._backoff_s, self._start_at = 0, 0.0, now
        #: The status of its end, once it does not run again.
        self.final_status: int | None = None
        #: What it waits for, if it cannot start.
        self.problem: str | None = None
        self.container: Container | None = None
        self._probes: dict[str, Probe] = {}
        self._grace_s: float = spec.get("terminationGracePeriodSeconds", 30)
        self._kill_at: float | None = None
        self._hook: subprocess.Popen[bytes] | None = None
        self._context: Manifest = spec.get("securityContext", {}) | self._main.get("securityContext", {})
        if self._context.get("runAsNonRoot") and self._context.get("runAsUser") == 0:
            raise ValueError(f"pod {self.name} has runAsNonRoot, and would run as root")
        self._ports = {port["name"]: port["containerPort"] for port in self._main.get("ports", [])}
        self.sandbox = Sandbox(place.router, place.address)

    @property
    def is_ready(self) -> bool:
        """Whether Services lead to it: it runs, has started and reports that it is ready."""
        if self.is_terminating or self.container is None or self._kill_at is not None:
            return False
        verdicts = (self._probes[name].verdict for name in ("startup", "readiness") if name in self._probes)
        return self.container.has_begun() and all(verdicts)

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed."""
        if self.final_status is not None:
            return "Failed" if self.final_status else "Succeeded"
        return "Running" if self.container is not None else "Pending"

    def endpoint(self) -> Endpoint:
        """The pod as the network sees it."""
        names = self._spec.get("hostname"), self._spec.get("subdomain")
        return Endpoint(self.key.namespace, self.place.address, self._labels, self._ports, *names, self.is_ready)

    def logs(self) -> str:
        """What its container has printed in all its lives."""
        return read_log(self.place.folder / "log")

    def delete(self, grace_s: float | None = None) -> None:
        """End it from the next step on, with its own grace or another one, once no Service leads to it."""
        self.is_terminating = True
        self._grace_s = self._grace_s if grace_s is None else grace_s

    def vanish(self) -> None:
        """Remove everything but files."""
        self._remove()
        self.sandbox.close()
        self.is_terminating = self.is_gone = True

    def step(self, now: float) -> None:
        """Do what is due."""
        if self.container is None:
            if self.is_terminating:
                self.vanish()
            elif self.final_status is None and now >= self._start_at:
                self._start(now)
            return
        status = self.container.exit_status()
        if status is not None:
            self._ended(status, now)
        elif self._kill_at is not None:
            self._await_end(now, self.container)
        elif self.is_terminating:
            self._begin_end(now, self.container)
        elif self.container.has_begun():
            self._probe(now, self.container)

    def _start(self, now: float) -> None:
        place, group = self.place, self._context.get("fsGroup")
        fields = {"metadata.name": self.name, "status.podIP": place.address, "spec.nodeName": place.node}
        try:
            volumes = {
                volume["name"]: make_volume(volume, place.folder / "volumes", place.claims, group, place.lookup)
                for volume in self._spec.get("volumes", [])
            }
            environment = make_environment(self._main, fields, place.lookup)
        except LookupError as error:  # a kubelet tries again, too, until what is missing is there
            self.problem = str(error)
            return
        hostname, self.problem, self._kill_at = self._spec.get("hostname", self.name), None, None
        options = engine_options(self.key.namespace, self._context, self._main.get("resources", {}).get("limits", {}))
        options += [f"--label={place.label}", f"--network=ns:{self.sandbox.path}", f"--hostname={hostname}"]
        for mount in self._main.get("volumeMounts", []):
            folder, is_read_only = volumes[mount["name"]]
            is_read_only |= mount.get("readOnly", False)
            options.append(f"--volume={folder}:{mount['mountPath']}{':ro' * is_read_only}")
        self.container = Container(self._main, options, place.folder, environment)
        specs = {name: self._main[field] for name, field in PROBES.items() if field in self._main}
        self._probes = {name: Probe(spec, now, place.pace) for name, spec in specs.items()}

    def _probe(self, now: float, container: Container) -> None:
        has_started = "startup" not in self._probes or self._probes["startup"].verdict
        for name in self._probes.keys() & ({"liveness", "readiness"} if has_started else {"startup"}):
            probe = self._probes[name]
            before = probe.verdict
            probe.step(now, lambda spec: self._ask(spec, container))
            if probe.verdict is not before:
                self._say(f"{name} is {str(probe.verdict).lower()}")
            if name != "readiness" and probe.verdict is False:
                self._begin_end(now, container)
                return

    def _ask(self, spec: Manifest, container: Container) -> subprocess.Popen[bytes]:
        """Start an attempt of a probe, or a hook."""
        if "exec" in spec:
            command = container.command(spec["exec"]["command"])
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        port = spec["httpGet"]["port"]  # there is no other kind in the manifests
        url = f"http://{self.place.address}:{self._ports.get(port, port)}{spec['httpGet'].get('path', '/')}"
        request = self.place.router.entering(sys.executable, "-I", "-S", "-c", _REQUEST, url)
        return subprocess.Popen(request, stderr=subprocess.DEVNULL)

    def _begin_end(self, now: float, container: Container) -> None:
        """Begin with its hook or SIGTERM; SIGKILL follows when the grace is over, and comes at once without grace."""
        self._kill_at = now + self._grace_s if self._grace_s else float("inf")
        if "lifecycle" in self._main and self._grace_s and container.has_begun():
            self._hook = self._ask(self._main["lifecycle"]["preStop"], container)
        else:
            container.send("TERM" if self._grace_s else "KILL")

    def _await_end(self, now: float, container: Container) -> None:
        assert self._kill_at is not None
        if now >= self._kill_at:
            self._say("killed, its grace is over")
            container.send("KILL")
            self._kill_at = float("inf")
        elif self._hook is not None and self._hook.poll() is not None:
            self._hook = None
            container.send("TERM")

    def _ended(self, status: int, now: float) -> None:
        self._say(f"ended with status {status}")
        self._remove()
        policy = self._spec.get("restartPolicy", "Always")
        if self.is_terminating or policy == "Never" or (policy == "OnFailure" and status == 0):
            self.final_status = status
            return
        self._start_at = now + self._backoff_s * self.place.pace
        self._backoff_s = min(max(2 * self._backoff_s, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
        self.restarts += 1

    def _remove(self) -> None:
        for probe in self._probes.values():
            probe.close()
        if self._hook is not None:
            self._hook.kill()
            self._hook.wait()
        if self.container is not None:
            self.container.remove()
        self._probes, self._hook, self.container = {}, None, None

    def _say(self, text: str) -> None:
        self.place.say(f"pod {self.name}: {text}")
