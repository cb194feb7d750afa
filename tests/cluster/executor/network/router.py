"""The network of a cluster: a router in a network namespace of its own, and a cable from it to every pod.

Every pod has an address of its own and is reached over the router only, also by pods of the same node, so that the
rules of Services and NetworkPolicies (nftables, of the router's namespace) see every packet. There is no bridge: a
bridge would carry packets past these rules unless the whole machine were configured otherwise. Nothing of all this is
visible outside, so clusters beside each other may use the same addresses.
"""

from __future__ import annotations

import subprocess

from tests.cluster.executor.processes import end_holder, entering, program, start_holder

POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
#: Where clients from outside the cluster are.
OUTSIDE_ADDRESS = "198.51.100.2"
#: The router's address on every cable: one that needs no route.
_GATEWAY = "169.254.1.1"


class Router:
    """The namespaces of a cluster, whose first process holds all others.

    Everything that the cluster starts runs in a PID namespace that ends with this process of Python, however it ends.
    """

    def __init__(self) -> None:
        self._process, self.pid = start_holder([], "pid", "net", "uts", hostname="router")
        try:
            self.ip("link set lo up", f"route add blackhole {POD_NETWORK}")
            self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        except BaseException:
            self.close()
            raise

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a command in the router's network; returns its output.

        Raises:
            OSError: if it fails.
        """
        done = subprocess.run([*entering(self.pid, "net"), *command], input=text, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}")
        return done.stdout

    def ip(self, *lines: str) -> None:
        """Do what these lines say, each a command of `ip`."""
        self.run(program("ip"), "-batch", "-", text="\n".join(lines) + "\n")

    def set_rules(self, table: str, rules: str) -> None:
        """Replace a table of nftables at once; connections that are there stay."""
        head = f"table ip {table} {{}}\ndelete table ip {table}\n"
        self.run(program("nft"), "-f", "-", text=f"{head}table ip {table} {{\n{rules}}}\n")

    def close(self) -> None:
        """End all processes in here; the kernel takes networks and rules along."""
        end_holder(self._process)


class Sandbox:
    """The namespaces of a pod, and its cable to the router: what its containers share.

    Args:
        router: The cluster's.
        hostname: The pod's name.
        address: Its address.
        cable: A name for the router's end of the cable, of at most 15 characters.
    """

    def __init__(self, router: Router, hostname: str, address: str, cable: str) -> None:
        self.address = address
        self._router, self._cable = router, cable
        prefix = entering(router.pid, "net", "pid")
        self._process, self.pid = start_holder(prefix, "pid", "net", "ipc", "uts", hostname=hostname)
        try:
            self._lay_cable()
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Plug the cable in."""
        self._router.ip(f"link set {self._cable} up", f"route add {self.address}/32 dev {self._cable}")

    def cut(self) -> None:
        """Pull the cable out: packets vanish both ways, and nobody is told."""
        self._router.ip(f"link set {self._cable} down")

    def close(self) -> None:
        """Kill all that runs in here; the cable goes with the namespace."""
        end_holder(self._process)

    def _lay_cable(self) -> None:
        self._router.ip(
            f"link add {self._cable} type veth peer name eth0 netns {self.pid}",
            f"address add {_GATEWAY}/32 dev {self._cable}",
        )
        self.connect()
        lines = (
            "link set lo up",
            f"address add {self.address}/32 dev eth0",
            "link set eth0 up",
            f"route add {_GATEWAY} dev eth0 scope link",
            f"route add default via {_GATEWAY}",
        )
        batch = [*entering(self.pid, "net"), program("ip"), "-batch", "-"]
        subprocess.run(batch, input="\n".join(lines).encode() + b"\n", check=True)
