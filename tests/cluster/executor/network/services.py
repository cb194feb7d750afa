"""Services, as rules of nftables and as names.

A Service with an address leads every new connection to one of its ready pods, in turn; without a ready pod it
refuses. A headless one is only a name with the addresses of all its ready pods, and one for each that has a hostname.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.executor.manifests import Key, Manifest, selects
from tests.cluster.executor.network.policies import Endpoint, policy_rules
from tests.cluster.executor.network.router import Router, Sandbox

DOMAIN = "cluster.local"
#: The address of the name server.
NAME_SERVER = "10.96.0.10"


class Fabric:
    """The router's rules, and the name server with its zone, which follow pods and objects."""

    def __init__(self, router: Router, folder: Path) -> None:
        self._router = router
        #: Of Services that are not headless.
        self.addresses: dict[Key, str] = {}
        self._objects: Mapping[Key, Manifest] = {}
        self._known: Sequence[Endpoint] | None = None
        folder.mkdir(parents=True)
        self._zone = folder / "names.json"
        self._zone.write_text("{}")
        self._sandbox = Sandbox(router, NAME_SERVER)
        serve = [sys.executable, "-I", "-S", str(Path(__file__).with_name("names.py")), str(self._zone)]
        self._server = subprocess.Popen(self._sandbox.entering("setpriv", "--pdeathsig=KILL", *serve))

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        self._sandbox.close()

    def set_objects(self, objects: Mapping[Key, Manifest]) -> None:
        """Take note of objects that have changed; new Services get addresses."""
        self._objects = objects
        for key, manifest in objects.items():
            if key.kind == "Service" and key not in self.addresses and manifest["spec"].get("clusterIP") != "None":
                self.addresses[key] = manifest["spec"].get("clusterIP") or f"10.96.1.{len(self.addresses) + 1}"
        self._known = None

    def update(self, pods: Sequence[Endpoint]) -> None:
        """Bring rules and names up to date, if pods or objects have changed."""
        if pods == self._known:
            return
        self._known = pods
        lead, refuse, zone = "", "", {}
        for key, service in self._objects.items():
            if key.kind == "Service":
                members = _members(service, pods)
                zone |= _names(key, self.addresses.get(key), members)
                for port in service["spec"]["ports"] if key in self.addresses else []:
                    match = f"ip daddr {self.addresses[key]} {port.get('protocol', 'TCP').lower()} dport {port['port']}"
                    targets = _targets(port, members)
                    lead += "".join(f"{match} {target}\n" for target in targets)
                    refuse += f"{match} reject\n" * (not targets)
        own = ", ".join(sorted(f"{pod.address} . {pod.address}" for pod in pods))
        # A pod that is led to itself would take its own packets for forged ones.
        itself = f"ct status dnat ip saddr . ip daddr {{ {own} }} masquerade\n" if own else ""
        self._router.set_rules(
            "services",
            f"chain lead {{\ntype nat hook prerouting priority dstnat;\n{lead}}}\n"
            f"chain itself {{\ntype nat hook postrouting priority srcnat;\n{itself}}}\n"
            f"chain refuse {{\ntype filter hook prerouting priority dstnat + 1;\n{refuse}}}\n",
        )
        policies = [manifest for key, manifest in self._objects.items() if key.kind == "NetworkPolicy"]
        self._router.set_rules("policies", policy_rules(policies, pods))
        part = self._zone.with_suffix(".part")
        part.write_text(json.dumps(zone))
        os.replace(part, self._zone)


def _members(service: Manifest, pods: Sequence[Endpoint]) -> list[Endpoint]:
    """The ready pods that a Service selects."""
    labels, namespace = {"matchLabels": service["spec"]["selector"]}, service["metadata"]["namespace"]
    return [pod for pod in pods if pod.is_ready and pod.namespace == namespace and selects(labels, pod.labels)]


def _targets(port: Manifest, members: Sequence[Endpoint]) -> list[str]:
    """Where connections go: the ends of rules, each for its share of the connections that those before leave."""
    numbers = [(pod.address, pod.port(port.get("targetPort", port["port"]))) for pod in members]
    known = [f"{address}:{number}" for address, number in numbers if number is not None]
    return [f"numgen inc mod {len(known) - taken} 0 dnat to {target}" for taken, target in enumerate(known)]


def _names(key: Key, address: str | None, members: Sequence[Endpoint]) -> dict[str, list[str]]:
    """The names of a Service, each with its addresses."""
    full = f"{key.name}.{key.namespace}.svc.{DOMAIN}"
    if address:
        return {full: [address]}
    single = {f"{pod.hostname}.{full}": [pod.address] for pod in members if pod.subdomain == key.name}
    return {full: [pod.address for pod in members]} | single
