"""Services as rules of nftables and as names.

A Service with an address leads every new connection to one of its ready pods, in turn; without a ready pod it
refuses. A headless one is only a name with the addresses of all its ready pods, and one for each that has a hostname.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.cluster.executor.manifests import Manifest, selects
from tests.cluster.executor.network.endpoints import Endpoint

DOMAIN = "cluster.local"


class ServedPort(NamedTuple):
    """One port of a Service: where it is asked for, and where it leads."""

    addresses: tuple[str, ...]
    protocol: str
    port: int
    targets: tuple[tuple[str, int], ...]


def service_rules(ports: Sequence[ServedPort]) -> str:
    """The body of a table that leads connections on, for `Router.set_rules`."""
    lead, refuse, own = [], [], set()
    for served in ports:
        for address in served.addresses:
            match = f"        ip daddr {address} {served.protocol} dport {served.port} "
            for taken, (target, port) in enumerate(served.targets):
                left = len(served.targets) - taken
                turn = f"numgen inc mod {left} 0 " if left > 1 else ""
                lead.append(f"{match}{turn}dnat to {target}:{port}\n")
            if not served.targets:
                refuse.append(f"{match}reject\n")
        own |= {f"{target} . {target}" for target, _ in served.targets}
    # A pod that is led to itself would take its own packets for forged ones.
    itself = f"        ct status dnat ip saddr . ip daddr {{ {', '.join(sorted(own))} }} masquerade\n" if own else ""
    return (
        f"    chain lead {{\n        type nat hook prerouting priority dstnat;\n{''.join(lead)}    }}\n"
        f"    chain itself {{\n        type nat hook postrouting priority srcnat;\n{itself}    }}\n"
        f"    chain refuse {{\n        type filter hook prerouting priority dstnat + 1;\n{''.join(refuse)}    }}\n"
    )


def served_ports(service: Manifest, addresses: Sequence[str], pods: Sequence[Endpoint]) -> Iterator[ServedPort]:
    """The ports of a Service that has these addresses."""
    members = members_of(service, pods)
    for port in service["spec"].get("ports", []):
        target = port.get("targetPort", port["port"])
        targets = [(pod.address, pod.port(target)) for pod in members]
        led = tuple((address, number) for address, number in targets if number is not None)
        yield ServedPort(tuple(addresses), port.get("protocol", "TCP").lower(), port["port"], led)


def members_of(service: Manifest, pods: Sequence[Endpoint]) -> list[Endpoint]:
    """The pods that a Service leads to."""
    spec, namespace = service["spec"], service["metadata"]["namespace"]
    selector, unready = spec.get("selector"), spec.get("publishNotReadyAddresses", False)
    return [
        pod
        for pod in pods
        if pod.namespace == namespace and selector and selects({"matchLabels": selector}, pod.labels)
        if pod.is_ready or unready
    ]


def is_headless(service: Manifest) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def names_of(service: Manifest, address: str | None, pods: Sequence[Endpoint]) -> dict[str, list[str]]:
    """The names of a Service, each with its addresses."""
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    full = f"{name}.{namespace}.svc.{DOMAIN}"
    members = members_of(service, pods)
    if address is not None:
        return {full: [address]}
    single = {f"{pod.hostname}.{full}": [pod.address] for pod in members if pod.hostname and pod.subdomain == name}
    return {full: [pod.address for pod in members]} | single


def service_links(services: Mapping[str, tuple[Manifest, str]]) -> dict[str, str]:
    """The environment variables by which pods are told of Services (`enableServiceLinks`)."""
    links = {}
    for name, (service, address) in services.items():
        prefix, port = name.upper().replace("-", "_"), service["spec"]["ports"][0]
        links[f"{prefix}_SERVICE_HOST"] = address
        links[f"{prefix}_SERVICE_PORT"] = str(port["port"])
        links[f"{prefix}_PORT"] = f"{port.get('protocol', 'TCP').lower()}://{address}:{port['port']}"
    return links
