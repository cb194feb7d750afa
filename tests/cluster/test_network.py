"""The executor's network: Services and their names, NetworkPolicies, and links that are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.executor.pods.pod import Pod

Start = Callable[..., Cluster]


def test_a_service_leads_to_all_pods_that_are_ready_and_refuses_without_one(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1)
    cluster.apply(small.web("web", 2) + small.pod("client"))
    _ready(cluster)
    client = _only(cluster, "client")
    names = {pod.name for pod in cluster.pods("app=web")}
    assert {_ask(cluster, client, "web") for _ in range(4)} == names
    assert _ask(cluster, client, cluster.address("web")) in names
    assert _ask(cluster, client, "web.default.svc.cluster.local") in names
    assert "Name or service not known" in _ask(cluster, client, "another")
    cluster.scale("Deployment", "web", 0)
    cluster.wait(lambda: not cluster.pods("app=web", terminating=True), "the end of all servers")
    cluster.step()
    assert "Connection refused" in _ask(cluster, client, "web")


def test_a_headless_service_is_the_names_of_its_pods(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1)
    server = small.container(small.WEB, ports=[{"name": "http", "containerPort": 8080}])
    cluster.apply(small.stateful("store", 2, server) + small.service("store", clusterIP="None") + small.pod("client"))
    _ready(cluster)
    client = _only(cluster, "client")
    for name in ("store-0", "store-1"):
        cluster.wait(lambda: _ask(cluster, client, f"{name}.store", 8080) == name, name)  # noqa: B023
    found = cluster.execute(client, "getent", "ahostsv4", "store").stdout
    assert all(pod.place.address in found for pod in cluster.pods("app=store"))


def test_policies_let_through_what_they_say_and_nothing_else(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1)
    cluster.apply(
        small.web("web", 1) + small.pod("friend", labels={"app": "friend", "tier": "a"}) + small.pod("stranger")
    )
    _ready(cluster)
    friend, stranger = _only(cluster, "friend"), _only(cluster, "stranger")
    server = _only(cluster, "web")
    assert _ask(cluster, friend, "web") == _ask(cluster, stranger, "web") == server.name

    from_friends = {"from": [{"podSelector": {"matchLabels": {"tier": "a"}}}], "ports": [{"port": "http"}]}
    selected = {"podSelector": {"matchLabels": {"app": "web"}}}
    cluster.apply(small.policy("to-web", **selected, policyTypes=["Ingress"], ingress=[from_friends]))
    cluster.step()
    assert _ask(cluster, friend, "web") == server.name
    assert "timed out" in _ask(cluster, stranger, "web")
    assert "timed out" in _ask(cluster, friend, server.place.address, 8081)
    # Probes come from the node, and are not asked.
    cluster.go_on(0.5)
    assert server.is_ready

    # All that leaves is forbidden, names included; then names are allowed, then the server is.
    everyone: dict[str, Any] = {"podSelector": {}}
    cluster.apply(small.policy("nothing", **everyone, policyTypes=["Egress"]))
    cluster.step()
    assert "Temporary failure in name resolution" in _ask(cluster, friend, "web", resolver="timeout:1 attempts:1")
    names = {"ports": [{"protocol": "UDP", "port": 53}]}
    cluster.apply(small.policy("names", **everyone, policyTypes=["Egress"], egress=[names]))
    cluster.step()
    assert "timed out" in _ask(cluster, friend, "web")
    to_web = {"to": [selected], "ports": [{"protocol": "TCP", "port": "http"}]}
    cluster.apply(small.policy("from-all", **everyone, policyTypes=["Egress"], egress=[to_web]))
    cluster.step()
    assert _ask(cluster, friend, "web") == server.name
    assert "timed out" in _ask(cluster, stranger, "web")


def test_a_cut_link_swallows_packets_and_connections_outlive_it(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1)
    echo = "import socket; s = socket.create_server(('', 9000)); c, _ = s.accept()\nwhile 1: c.sendall(c.recv(64))"
    # Says ping when asked to by a file, and prints what comes back.
    talk = (
        "import os, socket, sys, time\n"
        "c = socket.create_connection((sys.argv[1], 9000)); print('connected', flush=True)\n"
        "while not os.path.exists('/tmp/go'): time.sleep(0.01)\n"
        "c.sendall(b'ping'); print(c.recv(64), flush=True)\ntime.sleep(1000)"
    )
    cluster.apply(
        small.pod("server", small.container(echo, readinessProbe={"exec": {"command": small.python(_LISTENS)}}))
    )
    _ready(cluster)
    server = _only(cluster, "server")
    cluster.apply(small.pod("client", small.container("", command=small.python(talk, server.place.address))))
    cluster.wait(lambda: bool(cluster.pods("app=client")) and "connected" in _said(cluster, "client"), "a connection")
    cluster.cut(server)
    client = _only(cluster, "client")
    cluster.execute(client, "touch", "/tmp/go")
    assert "timed out" in _ask(cluster, client, server.place.address, 9000)
    assert "ping" not in _said(cluster, "client")
    cluster.mend(server)
    cluster.wait(lambda: "ping" in _said(cluster, "client"), "what was sent meanwhile")


#: Succeeds once something listens on port 9000, without connecting to it.
_LISTENS = "import sys; sys.exit(not any(':2328 ' in line for line in open('/proc/net/tcp')))"


def _ready(cluster: Cluster) -> None:
    cluster.wait(lambda: bool(cluster.pods()) and all(pod.is_ready for pod in cluster.pods()), "all pods")


def _only(cluster: Cluster, app: str) -> Pod:
    (pod,) = cluster.pods(f"app={app}")
    return pod


def _said(cluster: Cluster, app: str) -> str:
    return _only(cluster, app).logs()


def _ask(cluster: Cluster, client: Pod, host: str, port: int = 80, resolver: str = "") -> str:
    """What a pod gets for a request: the answer, or the last line of its error."""
    command = ["env", f"RES_OPTIONS={resolver}", *small.python(small.ASK, host, str(port))]
    return cluster.execute(client, *command).stdout.strip().rpartition("\n")[2]
