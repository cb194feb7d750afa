"""A pod: a sandbox, its volumes, and its containers one after the other (init) and side by side."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.cluster.executor.manifests import Key, Manifest
from tests.cluster.executor.network.endpoints import Endpoint, named_ports
from tests.cluster.executor.network.router import Router, Sandbox
from tests.cluster.executor.network.services import DOMAIN
from tests.cluster.executor.pods.container import Container
from tests.cluster.executor.pods.environment import make_environment, pod_fields
from tests.cluster.executor.pods.images import find_image
from tests.cluster.executor.pods.probes import network_attempt
from tests.cluster.executor.pods.supervised import Means, Supervised
from tests.cluster.executor.pods.volumes import Mount, Volumes, group_of

_DEFAULT_GRACE_S = 30


class Place(NamedTuple):
    """Where a pod runs, and what it has of its cluster.

    Args:
        folder: For the pod's files.
        claims: Where the volumes of PersistentVolumeClaims are.
        node: The name of its node.
        address: The pod's.
        cable: A name for its cable.
        name_server: The address that answers for names.
        links: The environment variables of Services.
        lookup: Finds ConfigMaps, Secrets and claims of the pod's namespace.
        pace: What a second of waiting in a manifest takes, in s.
        say: Takes note of what happens.
    """

    router: Router
    folder: Path
    claims: Path
    node: str
    address: str
    cable: str
    name_server: str
    links: Mapping[str, str]
    lookup: Callable[[str, str], Manifest | None]
    pace: float
    say: Callable[[str], None]


class Pod:
    """A pod from its first moment to its last.

    Args:
        manifest: With metadata (name, namespace, uid, labels) and spec.
        owner: What made it, if anything.
        template: The digest of the template that it was made from.
        place: Where it runs.
        now: In seconds of any clock.
    """

    def __init__(self, manifest: Manifest, owner: Key | None, template: str, place: Place, now: float) -> None:
        self.metadata, self.spec = manifest["metadata"], manifest["spec"]
        self.name: str = self.metadata["name"]
        self.key = Key("Pod", self.metadata["namespace"], self.name)
        self.owner, self.template, self.place = owner, template, place
        self.is_terminating = self.is_gone = False
        #: What it waits for, if it cannot start.
        self.problem: str | None = None
        self._volumes = Volumes(place.folder / "volumes", place.claims, place.lookup, group_of(self.spec))
        self._means = Means(
            make=self._make,
            ask=self._ask,
            say=lambda text: place.say(f"pod {self.name}: {text}"),
            pace=place.pace,
            grace_s=self.spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S),
            policy=self.spec.get("restartPolicy", "Always"),
        )
        init_policy = "Never" if self._means.policy == "Never" else "OnFailure"
        self._initial = [
            Supervised(spec, self._means._replace(policy=init_policy), now)
            for spec in self.spec.get("initContainers", [])
        ]
        self.containers = [Supervised(spec, self._means, now) for spec in self.spec["containers"]]
        self.sandbox = Sandbox(place.router, self.spec.get("hostname", self.name), place.address, place.cable)

    @property
    def is_ready(self) -> bool:
        """Whether Services lead to it."""
        return not self.is_terminating and all(container.is_ready for container in self.containers)

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed."""
        if any(initial.final_status for initial in self._initial):
            return "Failed"
        statuses = [container.final_status for container in self.containers]
        if None not in statuses:
            return "Failed" if any(statuses) else "Succeeded"
        return "Running" if any(container.container is not None for container in self.containers) else "Pending"

    @property
    def restarts(self) -> int:
        return sum(container.restarts for container in self.containers)

    def endpoint(self) -> Endpoint:
        """The pod as the network sees it."""
        return Endpoint(
            self.name,
            self.metadata["namespace"],
            self.place.address,
            self.metadata.get("labels", {}),
            named_ports(self.spec["containers"]),
            self.spec.get("hostname"),
            self.spec.get("subdomain"),
            self.is_ready,
        )

    def step(self, now: float) -> None:
        """Do what is due.

        Raises:
            ValueError: if the manifest asks for what the executor, or any kubelet, refuses.
        """
        if self.is_terminating:
            for container in [*self._initial, *self.containers]:
                container.step(now)
            if all(container.container is None for container in [*self._initial, *self.containers]):
                self.vanish()
            return
        try:
            self._volumes.make(self.spec.get("volumes", []))
            for initial in self._initial:
                if initial.final_status != 0:
                    initial.step(now)
                    return
            for container in self.containers:
                container.step(now)
            self.problem = None
        except LookupError as error:  # a kubelet tries again as well, until somebody makes what is missing
            if self.problem is None:
                self._means.say(f"waits, {error}")
            self.problem = str(error)

    def delete(self, now: float, grace_s: float | None = None) -> None:
        """Begin to end it, with its own grace or another one."""
        self.is_terminating = True
        for container in [*self._initial, *self.containers]:
            container.stop(now, grace_s)

    def vanish(self) -> None:
        """Be gone: cable, processes, everything but files."""
        for container in [*self._initial, *self.containers]:
            container.close()
        self.sandbox.close()
        self.is_terminating = self.is_gone = True

    def _make(self, spec: Manifest) -> Container:
        folder = self.place.folder / str(spec["name"])
        fields = pod_fields(self.metadata, self.place.address, self.place.node)
        links = self.place.links if self.spec.get("enableServiceLinks", True) else {}
        defaults = {**find_image(spec["image"]).environment, "HOSTNAME": self.name, **links}
        environment = make_environment(spec, defaults, fields, self.place.lookup)
        mounts = [*self._names(), *self._volumes.mounts(spec)]
        return Container(spec, self.spec, self.sandbox, folder, environment, mounts)

    def _names(self) -> list[Mount]:
        """The files by which programs find names."""
        namespace = self.metadata["namespace"]
        search = f"{namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
        files = {
            "hostname": f"{self.name}\n",
            "hosts": f"127.0.0.1 localhost\n{self.place.address} {self.name}\n",
            "resolv.conf": f"nameserver {self.place.name_server}\nsearch {search}\noptions ndots:5\n",
        }
        for name, text in files.items():
            (self.place.folder / name).write_text(text)
        return [Mount(self.place.folder / name, f"/etc/{name}") for name in files]

    def _ask(self, spec: Manifest, container: Container) -> subprocess.Popen[bytes]:
        if "exec" in spec:
            with container.log.with_name("probes").open("ab") as output:
                return container.start(spec["exec"]["command"], output)
        ports = named_ports(self.spec["containers"])
        return network_attempt(self.place.router, spec, self.place.address, ports)
