"""The NetworkPolicies of k8s/base, in force between pods with the labels of a run's: who reaches whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import yaml

from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.executor.pods.images import CHECKOUT
from tests.cluster.executor.processes import entering
from tests.cluster.rendered import ROLE

_NAMESPACE = "run"
#: The ports that processes of a run listen on, on every pod here.
_PORTS = {"redis": 6379, "rlx-server": 7001, "tensorboard": 6006}
#: Takes connections on all of them, and nothing else.
_SERVE = f"""
import select, socket
servers = [socket.create_server(("", port), backlog=100) for port in {sorted(_PORTS.values())}]
while True:
    for server in select.select(servers, [], [])[0]:
        server.accept()[0].close()
"""
_ROLES = ("redis", "rlx-server", "agent", "learner", "eval", "tensorboard")


def test_only_the_run_reaches_redis_and_only_rlx_is_open(
    start_cluster: Callable[..., Cluster], require_tool: Callable[..., str]
) -> None:
    command = [require_tool("kubectl"), "kustomize", str(CHECKOUT / "k8s" / "base")]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    policies = [each for each in yaml.safe_load_all(rendered) if each["kind"] == "NetworkPolicy"]
    cluster = start_cluster(namespace=_NAMESPACE, pace=0.1)
    for policy in policies:
        cluster.apply(yaml.safe_dump(policy | {"metadata": policy["metadata"] | {"namespace": _NAMESPACE}}))
    probe = {"tcpSocket": {"port": max(_PORTS.values())}, "timeoutSeconds": 10}
    server = small.container(_SERVE, readinessProbe=probe)
    part = {"app.kubernetes.io/part-of": "surreal"}
    for role in _ROLES:
        cluster.apply(small.pod(role, server, labels=part | {"app.kubernetes.io/name": role}))
    cluster.apply(small.pod("stranger", server))
    cluster.wait(lambda: all(pod.is_ready for pod in cluster.pods()) and len(cluster.pods()) == 7, "all pods")
    addresses = {pod.name: pod.place.address for pod in cluster.pods()}

    def reached(client: str, server: str, port: int) -> bool:
        words = (addresses[server], str(port))
        if client == "outside":
            inside = [*entering(cluster.outside, "net"), sys.executable, "-I", "-S", "-c", small.CONNECT, *words]
            return subprocess.run(inside, capture_output=True).returncode == 0
        label = "app=stranger" if client == "stranger" else ROLE.format(client)
        return cluster.execute(cluster.pods(label)[0], *small.python(small.CONNECT, *words)).returncode == 0

    for client in ("agent", "learner", "eval", "rlx-server"):
        assert reached(client, "redis", 6379), client
    for client in ("stranger", "outside"):
        assert reached(client, "rlx-server", 7001), client
        for server_, port in (("redis", 6379), ("rlx-server", 6379), ("learner", 7001), ("tensorboard", 6006)):
            assert not reached(client, server_, port), (client, server_, port)
    # What a process of the run may connect to is what it needs.
    assert not reached("agent", "stranger", 6379)
    assert not reached("agent", "learner", 7001)
