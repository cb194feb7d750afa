"""A cluster that executes manifests on this machine: what the API server, controllers, scheduler and kubelets do.

    with Cluster(folder) as cluster:
        cluster.apply(manifests)
        cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "web")
        cluster.execute(cluster.pods("app=web")[0], "cat", "/etc/hostname")

Nothing moves by itself but the containers: every wait steps the cluster, and there are no threads. Everything that it
starts is in namespaces that end with this process of Python (see `Router`).
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.executor.controllers import PLANS, Member, numbered_template
from tests.cluster.executor.manifests import Key, Manifest, digest, files_of, read
from tests.cluster.executor.network.fabric import NAME_SERVER, Fabric
from tests.cluster.executor.network.router import OUTSIDE_ADDRESS, Router, Sandbox
from tests.cluster.executor.pods.pod import Place, Pod

_STEP_S = 0.02


class Cluster:
    """A cluster, until it is closed.

    Args:
        folder: For logs, volumes and scripts.
        nodes: Names of its nodes; new pods go to the one with the fewest.
        pace: What a second of waiting takes, in s, in probes' periods and delays and in back-off; below 1 for quick
            tests. Grace and the time limits of probes are as written.
        namespace: The one that is meant where none is named.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str] = ("node-0", "node-1"),
        pace: float = 1.0,
        namespace: str = "default",
    ) -> None:
        self._namespace = namespace
        self.nodes = list(nodes)
        #: What happened: seconds since the start, and a sentence.
        self.events: list[tuple[float, str]] = []
        self._folder, self._pace = folder, pace
        self._objects: dict[Key, Manifest] = {}
        self._pods: dict[Key, Pod] = {}
        self._numbers = itertools.count(2)
        self._began = time.monotonic()
        with contextlib.ExitStack() as stack:
            self._router = stack.enter_context(contextlib.closing(Router()))
            outside = Sandbox(self._router, "outside", OUTSIDE_ADDRESS, "outside")
            self._outside = stack.enter_context(contextlib.closing(outside))
            self._fabric = Fabric(self._router, folder / "zone")
            self.apply(self._fabric.system())
            self._open = stack.pop_all()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything at once, without grace."""
        with self._open:
            for pod in self._pods.values():
                pod.vanish()

    # What a user does.

    def apply(self, manifests: str) -> None:
        """Make or replace objects, as `kubectl apply` does; pods follow at the next step."""
        for key, manifest in read(manifests, self._namespace):
            self._objects[key] = manifest
        self._fabric.set_objects(self._objects)

    def remove(self, kind: str, name: str) -> None:
        """Delete an object, and with it the pods that it has made."""
        del self._objects[Key(kind, self._namespace, name)]
        self._fabric.set_objects(self._objects)

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Ask for another number of pods."""
        self._objects[Key(kind, self._namespace, name)]["spec"]["replicas"] = replicas

    def restart(self, kind: str, name: str) -> None:
        """Replace all pods by the rules of their kind, as `kubectl rollout restart` does."""
        template = self._objects[Key(kind, self._namespace, name)]["spec"]["template"]
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations["kubectl.kubernetes.io/restartedAt"] = str(time.monotonic())

    def execute(self, pod: Pod, *command: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's first container, as `kubectl exec` does; standard error is in its output."""
        container = pod.containers[0].container
        if container is None:
            raise ProcessLookupError(f"pod {pod.name} has no running container")
        with container.start(command, subprocess.PIPE) as process:
            output, _ = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(list(command), process.returncode, output.decode(errors="replace"))

    def logs(self, pod: Pod) -> str:
        """What a pod's containers have printed, all lives of each."""
        logs = (pod.place.folder / container["name"] / "log" for container in pod.spec["containers"])
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def claim(self, name: str) -> Path:
        """The folder of a PersistentVolumeClaim."""
        return self._folder / "claims" / self._namespace / name

    # What is there.

    def pods(self, labels: str = "", *, terminating: bool = False) -> list[Pod]:
        """The pods with these labels ("app=web,tier=front"), oldest first; of those that are ending only if asked."""
        wanted = dict(label.split("=") for label in filter(None, labels.split(",")))
        return [
            pod
            for pod in self._pods.values()
            if pod.key.namespace == self._namespace and wanted.items() <= pod.metadata.get("labels", {}).items()
            if terminating or not pod.is_terminating
        ]

    def secrets(self) -> list[str]:
        """Everything that Secrets hold."""
        secrets = (files_of(manifest) for key, manifest in self._objects.items() if key.kind == "Secret")
        return [content.decode() for files in secrets for content in files.values()]

    def is_rolled_out(self, kind: str, name: str) -> bool:
        """Whether all pods that it asks for are there, ready, made from its newest template, and no others are."""
        key = Key(kind, self._namespace, name)
        spec = self._objects[key]["spec"]
        members = [pod for pod in self._pods.values() if pod.owner == key]
        is_current = all(pod.template == digest(spec["template"]) and pod.is_ready for pod in members)
        return is_current and len(members) == spec.get("replicas", 1)

    @property
    def outside(self) -> int:
        """The process whose network is that of a client outside the cluster."""
        return self._outside.pid

    def address(self, name: str) -> str:
        """A Service's address."""
        address = self._fabric.address(Key("Service", self._namespace, name))
        if address is None:
            raise LookupError(f"service/{name} is headless, or not there")
        return address

    # What goes wrong.

    def delete(self, pod: Pod, grace_s: float | None = None) -> None:
        """Delete a pod, which ends with grace; who made it makes another one."""
        self.say(f"pod {pod.name}: deleted")
        self._objects.pop(pod.key, None)
        pod.delete(time.monotonic(), grace_s)

    def kill(self, pod: Pod) -> None:
        """Kill a pod's processes with SIGKILL, as the kernel does when memory is short; its containers start again."""
        self.say(f"pod {pod.name}: killed")
        for supervised in pod.containers:
            if supervised.container is not None:
                supervised.container.kill()

    def cut(self, pod: Pod) -> None:
        """Cut a pod's link: nothing goes through, and no connection is told."""
        self.say(f"pod {pod.name}: link cut")
        pod.sandbox.cut()

    def mend(self, pod: Pod) -> None:
        """Mend its link."""
        self.say(f"pod {pod.name}: link mended")
        pod.sandbox.connect()

    def lose(self, node: str) -> None:
        """Lose a node: links first, so that no peer is told, then all that ran there, without grace.

        Its pods are made anew on other nodes at once, where Kubernetes would wait for minutes.
        """
        self.nodes.remove(node)
        lost = [pod for pod in self._pods.values() if pod.place.node == node]
        self.say(f"{node}: lost with {', '.join(pod.name for pod in lost)}")
        for pod in lost:
            pod.sandbox.cut()
        for pod in lost:
            pod.vanish()

    # What happens meanwhile.

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Step until something holds.

        Raises:
            TimeoutError: if it does not; the message has the pods and the ends of their logs.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout_s} s for {what}\n{self.describe()}")
            self.step()
            time.sleep(_STEP_S)

    def go_on(self, duration_s: float) -> None:
        """Step for some time."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.step()
            time.sleep(_STEP_S)

    def step(self) -> None:
        """Do everything that is due: make and delete pods, look after them, and tell the network."""
        now = time.monotonic()
        for key, manifest in list(self._objects.items()):
            if key.kind in PLANS:
                self._control(key, manifest["spec"], now)
            elif key.kind == "Pod" and key not in self._pods:
                self._make(key, manifest, None, "", now)
        for pod in list(self._pods.values()):
            is_orphan = pod.owner is not None and pod.owner not in self._objects
            if is_orphan and not pod.is_terminating:
                pod.delete(now)
            if not pod.is_gone:
                pod.step(now)
            if pod.is_gone:
                self.say(f"pod {pod.name}: gone")
                del self._pods[pod.key]
        self._fabric.update([pod.endpoint() for pod in self._pods.values()])

    def say(self, text: str) -> None:
        """Take note of an event."""
        self.events.append((time.monotonic() - self._began, text))

    def describe(self) -> str:
        """All pods, what happened last, and the ends of their logs."""
        pods = [
            f"{pod.name}: {pod.phase}{', ready' * pod.is_ready}, restarts: {pod.restarts} {pod.problem or ''}"
            for pod in self._pods.values()
        ]
        events = [f"{at:8.2f} s  {text}" for at, text in self.events[-30:]]
        logs = [f"--- {pod.name}\n{self.logs(pod)[-1500:]}" for pod in self._pods.values()]
        return "\n".join([*pods, *events, *logs])

    def _control(self, key: Key, spec: Manifest, now: float) -> None:
        """Have a controller's plan carried out."""
        template = digest(spec["template"])
        mine = {pod.name: pod for pod in self._pods.values() if pod.owner == key}
        members = [
            Member(
                pod.name,
                pod.template == template,
                pod.is_ready,
                pod.is_terminating,
                pod.phase in ("Succeeded", "Failed"),
                pod.phase == "Failed",
            )
            for pod in mine.values()
        ]
        plan = PLANS[key.kind](spec, members)
        for name in plan.delete:
            self.say(f"{key}: deletes {name}")
            mine[name].delete(now)
        for _ in range(plan.create):
            self._make(key, spec["template"], f"{key.name}-{template[:6]}-{uuid.uuid4().hex[:5]}", template, now)
        for ordinal in plan.ordinals:
            for claim in spec.get("volumeClaimTemplates", []):
                name = f"{claim['metadata']['name']}-{key.name}-{ordinal}"
                self._objects[Key("PersistentVolumeClaim", key.namespace, name)] = claim
            self._make(key, numbered_template(key.name, spec, ordinal), f"{key.name}-{ordinal}", template, now)

    def _make(self, owner: Key, template: Manifest, name: str | None, digest_of: str, now: float) -> None:
        metadata = {**template.get("metadata", {}), "name": name or owner.name, "namespace": owner.namespace}
        metadata["uid"] = str(uuid.uuid4())
        number = next(self._numbers)
        populations = {node: sum(pod.place.node == node for pod in self._pods.values()) for node in self.nodes}
        place = Place(
            router=self._router,
            folder=self._folder / "pods" / f"{metadata['name']}.{number}",
            claims=self._folder / "claims" / owner.namespace,
            node=min(populations, key=populations.__getitem__),
            address=f"10.244.{number // 256}.{number % 256}",
            cable=f"pod{number}",
            name_server=NAME_SERVER,
            links=self._fabric.links(owner.namespace),
            lookup=lambda kind, wanted: self._objects.get(Key(kind, owner.namespace, wanted)),
            pace=self._pace,
            say=self.say,
        )
        place.folder.mkdir(parents=True)
        manifest = {"metadata": metadata, "spec": template["spec"]}
        pod = Pod(manifest, None if owner.kind == "Pod" else owner, digest_of, place, now)
        self.say(f"pod {pod.name}: made on {place.node} as {place.address}")
        self._pods[pod.key] = pod
