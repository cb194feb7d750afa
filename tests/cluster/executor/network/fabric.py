"""What the network of a cluster is told whenever pods or objects change: addresses of Services, names, and rules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.executor.manifests import Key, Manifest
from tests.cluster.executor.network.endpoints import Endpoint
from tests.cluster.executor.network.policies import policy_rules
from tests.cluster.executor.network.router import Router
from tests.cluster.executor.network.services import (
    ServedPort,
    is_headless,
    names_of,
    served_ports,
    service_links,
    service_rules,
)

#: The Service of the name server.
NAME_SERVER = "10.96.0.10"
#: The pod that answers for names, with the Service that leads to it.
_SYSTEM = """
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {address}
  selector: {{k8s-app: kube-dns}}
  ports: [{{port: 53, protocol: UDP}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: names
      image: python
      command: [python3, -I, -S, /program/names.py, /zone/names.json]
      volumeMounts: [{{name: program, mountPath: /program}}, {{name: zone, mountPath: /zone}}]
  volumes:
    - {{name: program, hostPath: {{path: {program}}}}}
    - {{name: zone, hostPath: {{path: {zone}}}}}
"""


class Fabric:
    """The router's rules and the name server's zone.

    Args:
        router: The cluster's.
        folder: A new folder, for the zone.
    """

    def __init__(self, router: Router, folder: Path) -> None:
        self._router = router
        self._addresses: dict[Key, str] = {}
        self._objects: dict[Key, Manifest] = {}
        self._known: Sequence[Endpoint] | None = None
        folder.mkdir(parents=True)
        self._zone = folder / "names.json"
        self._zone.write_text("{}")

    def system(self) -> str:
        """The manifests of what the cluster itself runs."""
        return _SYSTEM.format(address=NAME_SERVER, program=Path(__file__).parent, zone=self._zone.parent)

    def set_objects(self, objects: Mapping[Key, Manifest]) -> None:
        """Take note of objects that have changed; new Services get addresses."""
        self._objects = {key: objects[key] for key in objects if key.kind in ("Service", "NetworkPolicy")}
        for key, service in self._objects.items():
            if key.kind == "Service" and key not in self._addresses and not is_headless(service):
                self._addresses[key] = service["spec"].get("clusterIP") or f"10.96.1.{len(self._addresses) + 1}"
        self._known = None

    def address(self, key: Key) -> str | None:
        """The address of a Service, unless it is headless."""
        return self._addresses.get(key)

    def links(self, namespace: str) -> dict[str, str]:
        """The variables by which a new pod is told of the Services that there are."""
        known = (key for key in self._objects if key.namespace == namespace and key in self._addresses)
        return service_links({key.name: (self._objects[key], self._addresses[key]) for key in known})

    def update(self, pods: Sequence[Endpoint]) -> None:
        """Bring rules and names up to date, if pods or objects have changed."""
        if pods == self._known:
            return
        self._known = pods
        ports: list[ServedPort] = []
        zone: dict[str, list[str]] = {}
        for key, service in self._objects.items():
            if key.kind == "Service":
                address = self._addresses.get(key) if not is_headless(service) else None
                zone.update(names_of(service, address, pods))
                ports += served_ports(service, [address] if address else [], pods)
        policies = [manifest for key, manifest in self._objects.items() if key.kind == "NetworkPolicy"]
        self._router.set_rules("services", service_rules(ports))
        self._router.set_rules("policies", policy_rules(policies, pods))
        part = self._zone.with_suffix(".part")
        part.write_text(json.dumps(zone))
        os.replace(part, self._zone)
