"""NetworkPolicies as rules of nftables.

A pod that a policy selects for a direction takes or sends only what a policy allows; others are free. Replies belong
to their connection. Probes, which come from the router itself, pass without rules, as those of kubelets do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.cluster.executor.manifests import Manifest, selects


class Endpoint(NamedTuple):
    """A pod as the network sees it: `hostname` is its name within a headless Service, `subdomain`."""

    namespace: str
    address: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    hostname: str | None
    subdomain: str | None
    is_ready: bool

    def port(self, port: int | str) -> int | None:
        """The number of a port that may be a name."""
        return port if isinstance(port, int) else self.ports.get(port)


def policy_rules(policies: Sequence[Manifest], pods: Sequence[Endpoint]) -> str:
    """The body of a table that lets through what the policies allow, for `Router.set_rules`."""
    jumps, chains = "", ""
    for number, pod in enumerate(pods):
        near = (policy["spec"] for policy in policies if policy["metadata"]["namespace"] == pod.namespace)
        mine = [spec for spec in near if selects(spec.get("podSelector", {}), pod.labels)]
        for direction, own, other in (("Egress", "saddr", "daddr"), ("Ingress", "daddr", "saddr")):
            chosen = [spec for spec in mine if direction in spec["policyTypes"]]
            if chosen:
                chain = f"{direction.lower()}-{number}"
                jumps += f"ip {own} {pod.address} jump {chain}\n"
                rules = (rule for spec in chosen for rule in spec.get(direction.lower(), []))
                ends = (f"{match}return\n" for rule in rules for match in _matches(rule, direction, pod, pods, other))
                chains += f"chain {chain} {{\n{''.join(ends)}drop\n}}\n"
    head = "type filter hook forward priority filter; policy accept;\nct state established,related accept\n"
    return f"{chains}chain forward {{\n{head}{jumps}}}\n"


def _matches(rule: Manifest, direction: str, pod: Endpoint, pods: Sequence[Endpoint], other: str) -> Iterator[str]:
    """One match for each peer and port that a rule allows: "ip saddr { 10.244.0.3 } tcp dport 80 "."""
    for chosen, where in _peers(rule.get("from" if direction == "Ingress" else "to", []), pod.namespace, pods, other):
        # The server knows a port's name: this pod, or the peer.
        servers = [pod] if direction == "Ingress" else chosen
        for port in rule.get("ports") or [{}]:
            if not port:
                yield where
                continue
            numbers = {server.port(port["port"]) for server in servers} - {None}
            yield from (f"{where}{port.get('protocol', 'TCP').lower()} dport {number} " for number in numbers)


def _peers(
    peers: Sequence[Manifest], namespace: str, pods: Sequence[Endpoint], other: str
) -> Iterator[tuple[Sequence[Endpoint], str]]:
    """Each peer's pods, and the match for their addresses."""
    if not peers:
        yield pods, ""
    for peer in peers:
        if set(peer) != {"podSelector"}:
            raise ValueError(f"NetworkPolicy: the executor does not know such a peer: {', '.join(peer)}")
        chosen = [pod for pod in pods if pod.namespace == namespace and selects(peer["podSelector"], pod.labels)]
        if chosen:
            yield chosen, f"ip {other} {{ {', '.join(sorted(pod.address for pod in chosen))} }} "
