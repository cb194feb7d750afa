"""A cluster that executes manifests on this machine: what API server, controllers, scheduler and kubelets do.

    cluster = Cluster(folder)
    cluster.apply(manifests)
    cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "web")
    cluster.execute(cluster.pods("app=web")[0], "cat", "/etc/hostname")
    cluster.close()

Its containers are podman's. Nothing else moves by itself: every wait steps the cluster, and there are no threads.
"""

from __future__ import annotations

import itertools
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from surreal import __version__
from tests.cluster.executor.controllers import PLANS, Member, numbered_template
from tests.cluster.executor.manifests import Key, Manifest, digest, read
from tests.cluster.executor.network.router import OUTSIDE_ADDRESS, Router, Sandbox
from tests.cluster.executor.network.services import Fabric
from tests.cluster.executor.pods.container import ENGINE
from tests.cluster.executor.pods.pod import Place, Pod

#: The image that `make image` builds.
IMAGE = f"surreal:{__version__}"
_STEP_S = 0.02
#: Removes the containers with a label when its input ends, as it does when this process of Python ends in any way.
_REMOVE = f'cat; {ENGINE} ps --all --quiet --filter "label=$0" | xargs -r {ENGINE} rm --force --time=0'


class Cluster:
    """A cluster, until it is closed, with logs and volumes in `folder`.

    `pace` is the duration of a second of waiting, in s, in probes' periods and in back-off; below 1 for quick tests.
    Grace and the time limits of probes are as written.
    """

    def __init__(
        self, folder: Path, nodes: Sequence[str] = ("node-0", "node-1"), pace: float = 1.0, namespace: str = "default"
    ) -> None:
        self._folder, self._pace, self._namespace, self.nodes = folder, pace, namespace, [*nodes]
        #: What happened: seconds since the start, and a sentence.
        self.events: list[tuple[float, str]] = []
        self._objects: dict[Key, Manifest] = {}
        self._pods: dict[Key, Pod] = {}
        self._numbers = itertools.count(2)
        self._began = time.monotonic()
        self._label = f"surreal-cluster={uuid.uuid4().hex}"
        remove = ["sh", "-c", _REMOVE, self._label]
        self._remover = subprocess.Popen(remove, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
        self._router = Router()
        #: The network of a client outside the cluster.
        self.outside = Sandbox(self._router, OUTSIDE_ADDRESS)
        self._fabric = Fabric(self._router, folder)

    def close(self) -> None:
        """End everything at once, without grace."""
        for pod in self._pods.values():
            pod.vanish()
        for each in (self._fabric, self.outside, self._router):
            each.close()
        self._remover.communicate()

    def apply(self, manifests: str) -> None:
        """Make or replace objects, as `kubectl apply` does; pods follow at the next step."""
        self._objects.update(read(manifests, self._namespace))
        self._fabric.set_objects(self._objects)

    def remove(self, kind: str, name: str) -> None:
        """Delete an object, and with it the pods that it has made."""
        del self._objects[self._key(kind, name)]
        self._fabric.set_objects(self._objects)

    def scale(self, kind: str, name: str, replicas: int) -> None:
        self._objects[self._key(kind, name)]["spec"]["replicas"] = replicas

    def restart(self, kind: str, name: str) -> None:
        """Replace all pods by the rules of their kind, as `kubectl rollout restart` does."""
        template = self._objects[self._key(kind, name)]["spec"]["template"]
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations["kubectl.kubernetes.io/restartedAt"] = str(time.monotonic())

    def execute(self, pod: Pod, *command: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's container, as `kubectl exec` does; standard error is in its output."""
        if pod.container is None:
            raise ProcessLookupError(f"pod {pod.name} has no running container")
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"}
        return subprocess.run(pod.container.command(command), timeout=timeout_s, text=True, **streams)

    def pods(self, labels: str = "", *, terminating: bool = False) -> list[Pod]:
        """The pods with these labels ("app=web,tier=front"), oldest first; terminating ones only on request."""
        wanted = dict(label.split("=") for label in filter(None, labels.split(",")))
        pods = (pod for pod in self._pods.values() if wanted.items() <= pod.endpoint().labels.items())
        return [pod for pod in pods if terminating or not pod.is_terminating]

    def claim(self, name: str) -> Path:
        """The folder of a PersistentVolumeClaim."""
        return self._folder / "claims" / self._namespace / name

    def is_rolled_out(self, kind: str, name: str) -> bool:
        """Whether exactly the pods that it asks for are there, ready, and made from its newest template."""
        spec = self._objects[self._key(kind, name)]["spec"]
        members = [pod for pod in self._pods.values() if pod.owner == self._key(kind, name)]
        is_current = all(pod.template == digest(spec["template"]) and pod.is_ready for pod in members)
        return is_current and len(members) == spec.get("replicas", 1)

    def address(self, name: str) -> str:
        return self._fabric.addresses[self._key("Service", name)]

    def delete(self, pod: Pod, grace_s: float | None = None) -> None:
        """Delete a pod, which ends with grace; its owner makes another one."""
        self.say(f"pod {pod.name}: deleted")
        self._objects.pop(pod.key, None)
        pod.delete(grace_s)

    def kill(self, pod: Pod) -> None:
        """Kill a pod's processes with SIGKILL, as the kernel does when memory is short; its container starts again."""
        self.say(f"pod {pod.name}: killed")
        if pod.container is not None:
            pod.container.send("KILL")

    def cut(self, pod: Pod) -> None:
        """Cut a pod's link: nothing goes through, and no peer is told."""
        self.say(f"pod {pod.name}: link cut")
        pod.sandbox.cut()

    def mend(self, pod: Pod) -> None:
        self.say(f"pod {pod.name}: link mended")
        pod.sandbox.connect()

    def lose(self, node: str) -> None:
        """Lose a node: links first, so that no peer is told, then all that ran there."""
        self.nodes.remove(node)
        lost = [pod for pod in self._pods.values() if pod.place.node == node]
        self.say(f"{node}: lost with {', '.join(pod.name for pod in lost)}")
        for pod in lost:
            pod.sandbox.cut()
        for pod in lost:
            pod.vanish()

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Step until something holds; a TimeoutError shows the pods and the ends of their logs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout_s} s for {what}\n{self.describe()}")
            self.step()
            time.sleep(_STEP_S)

    def go_on(self, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        self.wait(lambda: time.monotonic() > end, "some time", duration_s + 60.0)

    def step(self) -> None:
        """Do everything that is due: make and delete pods, look after them, and tell the network."""
        now = time.monotonic()
        for key, manifest in list(self._objects.items()):
            if key.kind in PLANS:
                self._control(key, manifest["spec"], now)
            elif key.kind == "Pod" and key not in self._pods:
                self._make(key, manifest, key.name, "", now)
        for pod in self._pods.values():
            if pod.owner not in self._objects and not pod.is_terminating:
                pod.delete()
        self._fabric.update([pod.endpoint() for pod in self._pods.values()])
        for pod in list(self._pods.values()):
            if not pod.is_gone:
                pod.step(now)
            if pod.is_gone:
                self.say(f"pod {pod.name}: gone")
                del self._pods[pod.key]
        self._fabric.update([pod.endpoint() for pod in self._pods.values()])

    def say(self, text: str) -> None:
        self.events.append((time.monotonic() - self._began, text))

    def describe(self) -> str:
        """All pods, the latest events, and the ends of logs."""
        texts = [f"{at:8.2f} s  {text}" for at, text in self.events[-30:]]
        for pod in self._pods.values():
            texts.append(f"--- {pod.name}: {pod.phase}, ready: {pod.is_ready} {pod.problem}\n{pod.logs()[-1500:]}")
        return "\n".join(texts)

    def _key(self, kind: str, name: str) -> Key:
        return Key(kind, self._namespace, name)

    def _control(self, key: Key, spec: Manifest, now: float) -> None:
        """Carry out a controller's plan."""
        newest = digest(spec["template"])
        mine = {pod.name: pod for pod in self._pods.values() if pod.owner == key}
        members = [Member(name, pod.template == newest, pod.is_ready, pod.is_terminating) for name, pod in mine.items()]
        plan = PLANS[key.kind](spec, members)
        for name in plan.delete:
            self.say(f"{key}: deletes {name}")
            mine[name].delete()
        for _ in range(plan.create):
            self._make(key, spec["template"], f"{key.name}-{newest[:6]}-{uuid.uuid4().hex[:5]}", newest, now)
        for ordinal in plan.ordinals:
            for claim in spec.get("volumeClaimTemplates", []):
                name = f"{claim['metadata']['name']}-{key.name}-{ordinal}"
                self._objects[Key("PersistentVolumeClaim", key.namespace, name)] = claim
            self._make(key, numbered_template(key.name, spec, ordinal), f"{key.name}-{ordinal}", newest, now)

    def _make(self, owner: Key, template: Manifest, name: str, digest_of: str, now: float) -> None:
        number = next(self._numbers)
        populations = {node: sum(pod.place.node == node for pod in self._pods.values()) for node in self.nodes}
        place = Place(
            self._router,
            self._folder / "pods" / f"{name}.{number}",
            self._folder / "claims" / owner.namespace,
            min(populations, key=populations.__getitem__),
            f"10.244.{number // 256}.{number % 256}",
            self._label,
            lambda kind, wanted: self._objects.get(Key(kind, owner.namespace, wanted)),
            self._pace,
            self.say,
        )
        pod = Pod(Key("Pod", owner.namespace, name), template, owner, digest_of, place, now)
        self.say(f"pod {pod.name}: made on {place.node} as {place.address}")
        self._pods[pod.key] = pod
