"""The NetworkPolicies of k8s/base, in force between pods with the labels of a run's: who reaches whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import yaml

from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.rendered import CHECKOUT

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
#: Connects to all of its arguments, HOST:PORT, and prints those that take the connection within a second.
_REACH = """
import socket, sys, threading
def connect(word):
    host, _, port = word.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
        print(word)
    except OSError:
        pass
for word in sys.argv[1:]:
    threading.Thread(target=connect, args=(word,)).start()
"""
#: Succeeds once something listens on the last of them.
_LISTENS = f"import sys; sys.exit(':{max(_PORTS.values()):04X} ' not in open('/proc/net/tcp').read())"
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
    probe = {"exec": {"command": small.python(_LISTENS)}, "timeoutSeconds": 10}
    server = small.container(_SERVE, readinessProbe=probe)
    part = {"app.kubernetes.io/part-of": "surreal"}
    for role in _ROLES:
        cluster.apply(small.pod(role, server, labels=part | {"app.kubernetes.io/name": role}))
    cluster.apply(small.pod("stranger", server))
    cluster.wait(lambda: all(pod.is_ready for pod in cluster.pods()) and len(cluster.pods()) == 7, "all pods")
    addresses = {pod.name: pod.place.address for pod in cluster.pods()}
    words = {f"{addresses[name]}:{port}": (name, port) for name in addresses for port in _PORTS.values()}

    def reached(client: str) -> set[tuple[str, int]]:
        """What a client reaches of others."""
        if client == "outside":
            said = cluster.outside.run(sys.executable, "-I", "-S", "-c", _REACH, *words)
        else:
            (pod,) = (pod for pod in cluster.pods() if pod.name == client)
            said = cluster.execute(pod, *small.python(_REACH, *words)).stdout
        return {words[line] for line in said.splitlines() if words[line][0] != client}

    for client in _ROLES:
        # Of a run's pods, each reaches Redis and nothing else of the cluster.
        assert reached(client) == {("redis", 6379)} - {(client, 6379)}, client
    anybody = {("rlx-server", 7001)}
    assert reached("stranger") == anybody
    assert reached("outside") == anybody | {("stranger", port) for port in _PORTS.values()}
