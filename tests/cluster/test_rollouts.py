"""The executor's controllers: rolling updates, StatefulSets, Jobs, lost nodes; and that nothing outlives a cluster."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.executor.controllers import Member, Plan, plan_deployment, plan_stateful_set
from tests.cluster.executor.pods.pod import Pod

Start = Callable[..., Cluster]
ROOT = Path(__file__).parents[2]
#: Asks a Service over and over, and writes down who answers.
_ASK_ON = """
import socket, time
while True:
    try:
        connection = socket.create_connection(("web", 80), 5)
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        print(b"".join(iter(lambda: connection.recv(1024), b"")).decode().splitlines()[-1], flush=True)
    except OSError as error:
        print("FAILED", error, flush=True)
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("surge", "missing"), [(1, 0), (0, 1), ("25%", "25%"), (3, 3)])
def test_a_rolling_update_keeps_to_its_bounds_however_pods_become_ready(surge: int | str, missing: int | str) -> None:
    wanted = 4
    spec = {"replicas": wanted, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}}
    most = wanted + (1 if surge == "25%" else int(surge))
    least = wanted - (1 if missing == "25%" else int(missing))
    members = [Member(f"old-{i}", is_current=False, is_ready=True, is_terminating=False) for i in range(wanted)]
    for round_ in itertools.count():
        plan = plan_deployment(spec, members)
        members = [member for member in members if member.name not in plan.delete]
        members += [Member(f"new-{round_}-{i}", True, False, False) for i in range(plan.create)]
        assert len(members) <= most
        assert sum(member.is_ready for member in members) >= least
        waiting = next((i for i, member in enumerate(members) if not member.is_ready), None)
        if waiting is not None:
            members[waiting] = members[waiting]._replace(is_ready=True)
        elif len(members) == wanted and all(member.is_current for member in members):
            break
        assert round_ < 20


def test_recreate_waits_for_the_end_of_the_old_one() -> None:
    spec = {"replicas": 1, "strategy": {"type": "Recreate"}}
    old = Member("old", is_current=False, is_ready=True, is_terminating=False)
    assert plan_deployment(spec, [old]) == Plan(delete=("old",))
    assert plan_deployment(spec, [old._replace(is_terminating=True)]) == Plan()
    assert plan_deployment(spec, []) == Plan(create=1)


def test_a_stateful_set_goes_up_by_number_and_is_replaced_down_by_number() -> None:
    spec = {"replicas": 3}
    pods = [Member(f"s-{i}", is_current=True, is_ready=True, is_terminating=False) for i in range(3)]
    assert plan_stateful_set(spec, []) == Plan(ordinals=(0,))
    assert plan_stateful_set(spec, [pods[0]._replace(is_ready=False)]) == Plan()
    assert plan_stateful_set(spec, pods[:1]) == Plan(ordinals=(1,))
    assert plan_stateful_set(spec, [pods[0], pods[2]]) == Plan(ordinals=(1,))
    assert plan_stateful_set({"replicas": 3, "podManagementPolicy": "Parallel"}, []) == Plan(ordinals=(0, 1, 2))
    old = [pod._replace(is_current=False) for pod in pods]
    assert plan_stateful_set(spec, old) == Plan(delete=("s-2",))
    assert plan_stateful_set(spec, [*old[:2], pods[2]._replace(is_ready=False)]) == Plan()
    assert plan_stateful_set(spec, [*old[:2], pods[2]]) == Plan(delete=("s-1",))
    assert plan_stateful_set({"replicas": 1}, pods) == Plan(delete=("s-2",))


def test_a_service_answers_all_the_time_while_its_pods_are_replaced(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1)
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster.apply(small.web("web", 2, strategy=strategy) + small.pod("client", small.container(_ASK_ON)))
    cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "two servers")
    (client,) = cluster.pods("app=client")
    old = {pod.name for pod in cluster.pods("app=web")}
    cluster.wait(lambda: _answered(cluster, client) >= old, "answers of both")
    begun = len(client.logs().splitlines())
    cluster.restart("Deployment", "web")
    cluster.wait(lambda: not cluster.is_rolled_out("Deployment", "web"), "a beginning")
    cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "two other servers")
    new = {pod.name for pod in cluster.pods("app=web")}
    cluster.wait(lambda: _answered(cluster, client) >= new, "answers of both new ones")
    assert not old & new
    # Servers here end without a pause: what was on its way to one of them may fail, but never two in a row.
    lines = client.logs().splitlines()[begun:]
    assert not [pair for pair in itertools.pairwise(lines) if all(line.startswith("FAILED") for line in pair)]
    # A new one was ready before an old one was deleted.
    texts = [text for _, text in cluster.events]
    first_ready = next(i for i, text in enumerate(texts) if "readiness is true" in text and text.split()[1][:-1] in new)
    assert first_ready < next(i for i, text in enumerate(texts) if "deletes" in text)


def test_a_stateful_set_keeps_names_and_volumes(start_cluster: Start) -> None:
    cluster = start_cluster()
    count = (
        "open('/data/lives', 'a').write('x'); print(open('/data/lives').read(), flush=True)\n"
        "import time; time.sleep(1000)"
    )
    cluster.apply(
        small.stateful("store", 2, small.container(count, volumeMounts=[{"name": "data", "mountPath": "/data"}]))
    )
    cluster.wait(lambda: cluster.is_rolled_out("StatefulSet", "store"), "two pods")
    first, second = cluster.pods("app=store")
    assert [first.name, second.name] == ["store-0", "store-1"]
    assert second.endpoint().labels["apps.kubernetes.io/pod-index"] == "1"
    cluster.wait(lambda: "x\n" in second.logs(), "its first life")
    cluster.delete(second)
    cluster.wait(lambda: second.is_gone and cluster.is_rolled_out("StatefulSet", "store"), "another store-1")
    again = cluster.pods("app=store")[-1]
    cluster.wait(lambda: "xx\n" in again.logs(), "its second life")
    assert (again.name, again is second) == ("store-1", False)


def test_pods_of_a_lost_node_are_made_elsewhere(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.1, nodes=("left", "right"))
    cluster.apply(small.web("web", 4))
    cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "four servers")
    assert {pod.place.node for pod in cluster.pods("app=web")} == {"left", "right"}
    processes = [pod.container.pid for pod in cluster.pods("app=web") if pod.place.node == "left"]
    cluster.lose("left")
    assert not any(map(psutil.pid_exists, processes))
    cluster.wait(lambda: cluster.is_rolled_out("Deployment", "web"), "four servers again")
    assert {pod.place.node for pod in cluster.pods("app=web")} == {"right"}
    cluster.remove("Deployment", "web")
    cluster.wait(lambda: not cluster.pods("app=web", terminating=True), "the end of all")


def test_nothing_outlives_a_cluster_whose_tests_are_killed(start_cluster: Start, tmp_path: Path) -> None:
    start_cluster().close()  # what clusters need is there
    program = (
        "import sys; from pathlib import Path; from tests.cluster import small\n"
        "from tests.cluster.executor.cluster import Cluster\n"
        "cluster = Cluster(Path(sys.argv[1])); cluster.apply(small.pod('pod'))\n"
        "cluster.wait(lambda: bool(cluster.pods()) and cluster.pods()[0].is_ready, 'a pod')\n"
        "print(cluster.pods()[0].container.pid, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "other")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        inside = [psutil.Process(int(word)) for word in process.stdout.readline().split()]
        assert len(inside) == 1
        process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(inside, timeout=30)[1] == []


def _answered(cluster: Cluster, client: Pod) -> set[str]:
    return set(client.logs().split())
