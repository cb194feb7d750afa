"""Clients of a rendered run reach it through its Service, for `make cluster`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster import small
from tests.cluster.executor.cluster import IMAGE, Cluster
from tests.cluster.rendered import rendered_run
from tests.cluster.test_cartpole import REPORTS, TIMEOUT_S, long_only


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_an_idle_rlx_server_is_reached_through_its_service(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(namespace="surreal-cartpole-rlx")
    token = {"name": "token", "secret": {"secretName": "surreal-rlx"}}
    client = {
        "name": "client",
        "image": IMAGE,
        "args": ["rlx-client", "CartPole-v1", "--server=rlx:7001", "--token-file=/token/token", "--episodes=3"],
        "volumeMounts": [{"name": "token", "mountPath": "/token"}],
    }
    with rendered_run(cluster, "cartpole-rlx", (), REPORTS / "rlx.txt") as run:
        cluster.wait(lambda: bool(run.pods("rlx-server")) and run.pods("rlx-server")[0].is_ready, "ready", TIMEOUT_S)
        cluster.go_on(30.0)
        assert run.pods("rlx-server")[0].is_ready
        cluster.apply(small.pod("client", client, restartPolicy="Never", volumes=[token]))
        cluster.step()
        cluster.wait(lambda: cluster.pods("app=client")[0].phase == "Succeeded", "three episodes", TIMEOUT_S)
