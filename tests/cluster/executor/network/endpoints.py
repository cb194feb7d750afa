"""Pods as the network sees them: an address with labels and names for ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Endpoint(NamedTuple):
    """A pod with an address.

    Args:
        ports: The containers' named ports.
        hostname: Its name within a headless Service (`subdomain`), if it has one.
        is_ready: Whether Services lead to it.
    """

    name: str
    namespace: str
    address: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    hostname: str | None = None
    subdomain: str | None = None
    is_ready: bool = True

    def port(self, port: int | str) -> int | None:
        """The number of a port that may be a name."""
        return port if isinstance(port, int) else self.ports.get(port)


def named_ports(containers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The ports of a pod's containers that have names."""
    ports = (port for container in containers for port in container.get("ports", []))
    return {port["name"]: port["containerPort"] for port in ports if "name" in port}
