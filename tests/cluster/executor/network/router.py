"""The network of a cluster: a router in its own network namespace, and a cable from it to every pod.

Every packet goes through the router, also between pods of the same node, so that its rules (nftables) for Services and
NetworkPolicies see it; a bridge would carry packets past them. Nothing of this is visible outside, so concurrent
clusters may use the same addresses.
"""

from __future__ import annotations

import subprocess

#: Where clients from outside the cluster are.
OUTSIDE_ADDRESS = "198.51.100.2"
#: The router's address on every cable: one that needs no route.
_GATEWAY = "169.254.1.1"


class Namespace:
    """A network namespace, held by a process that ends when this process of Python does, even by `kill -9`."""

    def __init__(self) -> None:
        hold = ["unshare", "--net", "sh", "-c", "echo; exec cat >/dev/null"]
        self._holder = subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            raise OSError(f"{' '.join(hold)} ended with status {self._holder.wait()}")
        self.path = f"/proc/{self._holder.pid}/ns/net"

    def entering(self, *command: str) -> list[str]:
        """A command that runs another one in here."""
        return ["nsenter", f"--net={self.path}", "--", *command]

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a command in here; returns its output."""
        done = subprocess.run(self.entering(*command), input=text, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}")
        return done.stdout

    def ip(self, *lines: str) -> None:
        """Run these lines, each a command of `ip`."""
        self.run("ip", "-batch", "-", text="\n".join(lines) + "\n")

    def close(self) -> None:
        """End the holder; the kernel removes the namespace once no container is in it."""
        self._holder.communicate()


class Router(Namespace):
    """The namespace that all packets of a cluster go through."""

    def __init__(self) -> None:
        super().__init__()
        self.ip("link set lo up", "route add blackhole 10.244.0.0/16")
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def set_rules(self, table: str, rules: str) -> None:
        """Replace a table of nftables at once; existing connections stay."""
        head = f"table ip {table} {{}}\ndelete table ip {table}\n"
        self.run("nft", "-f", "-", text=f"{head}table ip {table} {{\n{rules}}}\n")


class Sandbox(Namespace):
    """A pod's network, and its cable to the router."""

    def __init__(self, router: Router, address: str) -> None:
        super().__init__()
        cable = f"c{address}"
        self._router, self._address, self._cable = router, address, cable
        router.ip(
            f"link add {cable} type veth peer name eth0 netns {self._holder.pid}",
            f"address add {_GATEWAY}/32 dev {cable}",
        )
        self.connect()
        up = ("link set lo up", f"address add {address}/32 dev eth0", "link set eth0 up")
        self.ip(*up, f"route add {_GATEWAY} dev eth0 scope link", f"route add default via {_GATEWAY}")

    def connect(self) -> None:
        """Plug the cable in."""
        self._router.ip(f"link set {self._cable} up", f"route add {self._address}/32 dev {self._cable}")

    def cut(self) -> None:
        """Pull the cable out: packets vanish both ways, and no peer is told."""
        self._router.ip(f"link set {self._cable} down")
