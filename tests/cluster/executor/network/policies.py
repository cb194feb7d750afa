"""NetworkPolicies as rules of nftables.

A pod that some policy selects for a direction takes or sends only what a policy allows; others are free. Who is
allowed to answer is known by the connection. What comes from the router itself (probes) is not asked, as kubelets are
not in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.cluster.executor.manifests import Manifest, selects
from tests.cluster.executor.network.endpoints import Endpoint

_HEAD = """\
    chain forward {
        type filter hook forward priority filter; policy accept;
        ct state established,related accept
"""


def policy_rules(policies: Sequence[Manifest], pods: Sequence[Endpoint]) -> str:
    """The body of a table that lets through what the policies allow, for `Router.set_rules`."""
    jumps, chains = [], []
    for number, pod in enumerate(pods):
        mine = [policy for policy in policies if _applies(policy, pod)]
        for direction, own, other in (("Egress", "saddr", "daddr"), ("Ingress", "daddr", "saddr")):
            chosen = [policy["spec"] for policy in mine if direction in _types(policy["spec"])]
            if not chosen:
                continue
            chain = f"{direction.lower()}-{number}"
            jumps.append(f"        ip {own} {pod.address} jump {chain} comment {_quoted(pod.name)}\n")
            rules = (rule for spec in chosen for rule in spec.get(direction.lower(), []))
            matches = [match for rule in rules for match in _matches(rule, direction, pod, pods, other)]
            lines = "".join(f"        {match}return\n" for match in matches)
            chains.append(f"    chain {chain} {{\n{lines}        drop\n    }}\n")
    return "".join(chains) + _HEAD + "".join(jumps) + "    }\n"


def _applies(policy: Manifest, pod: Endpoint) -> bool:
    namespace = policy["metadata"]["namespace"]
    return namespace == pod.namespace and selects(policy["spec"].get("podSelector", {}), pod.labels)


def _types(spec: Manifest) -> list[str]:
    """Directions that a policy is about; without a word of it, egress only where it has rules for it."""
    types: list[str] = spec.get("policyTypes", ["Ingress", *(["Egress"] if "egress" in spec else [])])
    return types


def _matches(rule: Manifest, direction: str, pod: Endpoint, pods: Sequence[Endpoint], other: str) -> Iterator[str]:
    """One match for each peer and port that a rule allows: "ip saddr { 10.244.0.3 } tcp dport 80 "."""
    peers = rule.get("from" if direction == "Ingress" else "to")
    for chosen, where in _peers(peers, pod.namespace, pods, other):
        # A port's name is known by who is asked: this pod, or the peer.
        yield from (where + port for port in _ports(rule.get("ports"), [pod] if direction == "Ingress" else chosen))


def _peers(
    peers: Sequence[Manifest] | None, namespace: str, pods: Sequence[Endpoint], other: str
) -> Iterator[tuple[Sequence[Endpoint], str]]:
    if not peers:
        yield pods, ""
        return
    for peer in peers:
        if "ipBlock" in peer:
            block = peer["ipBlock"]
            excepted = f"ip {other} != {{ {', '.join(block['except'])} }} " if block.get("except") else ""
            inside = "" if block["cidr"] == "0.0.0.0/0" else f"ip {other} {block['cidr']} "
            yield pods, inside + excepted
            continue
        chosen = [pod for pod in pods if _is_peer(peer, namespace, pod)]
        if chosen:
            yield chosen, f"ip {other} {{ {', '.join(sorted(pod.address for pod in chosen))} }} "


def _is_peer(peer: Manifest, namespace: str, pod: Endpoint) -> bool:
    if "namespaceSelector" in peer:
        is_inside = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace})
    else:
        is_inside = pod.namespace == namespace
    return is_inside and selects(peer.get("podSelector", {}), pod.labels)


def _ports(ports: Sequence[Manifest] | None, servers: Sequence[Endpoint]) -> Iterator[str]:
    if not ports:
        yield ""
        return
    for port in ports:
        protocol = port.get("protocol", "TCP").lower()
        if "port" not in port:
            yield f"meta l4proto {protocol} "
            continue
        numbers = {server.port(port["port"]) for server in servers} - {None}
        yield from (f"{protocol} dport {_range(number, port)} " for number in sorted(map(int, filter(None, numbers))))


def _range(first: int, port: Manifest) -> str:
    return f"{first}-{port['endPort']}" if "endPort" in port else str(first)


def _quoted(text: Any) -> str:
    return '"' + str(text).replace('"', "") + '"'
