"""Rendered manifests of the local overlay, executed: CartPole is solved, whatever happens to pods, nodes and links.

`make cluster` has one short run with a few disturbances, and one for each kind, with more of them
(docs/cluster-tests.md). What happened in each is written into .cache/cluster/.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from surreal.base.system.probe import OVER
from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.rendered import CHECKOUT, RenderedRun, rendered_run

#: What the long runs train: set by `make cluster`.
PRESET = os.environ.get("SURREAL_TEST_CLUSTER", "")
#: What the short one does: the quickest.
SHORT_PRESET = "cartpole-trpo"
REPORTS = CHECKOUT / ".cache" / "cluster"
#: On a machine with nothing else to do, a run takes less than a minute.
TIMEOUT_S = 1500.0 if PRESET else 240.0
#: Checkpoints often enough for learners that are killed.
SETTINGS = ("run.max_env_steps=null", "checkpoint.checkpoint_time_interval=10")
#: A mean return that counts as solved.
GOAL = 475

#: The exit code of a process that SIGTERM has drained (docs/endings.md); one that was killed has 137.
DRAINED = 143

Start = Callable[..., Cluster]
long_only = pytest.mark.skipif(not PRESET, reason="for `make cluster`")


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_cartpole_is_solved_on_the_local_overlay(start_cluster: Start, require_tool: Callable[..., str]) -> None:
    require_tool("kubectl")
    cluster = start_cluster(namespace=f"surreal-{SHORT_PRESET}")
    settings = (*SETTINGS, f"run.stop_at_return={GOAL}")
    with rendered_run(cluster, SHORT_PRESET, settings, REPORTS / "short.txt") as run:
        cluster.wait(lambda: bool(run.rounds()), "a first score", TIMEOUT_S)
        _assert_only_the_run_reaches_redis(cluster, run)
        _with_cut_link(run, "agent", 2.0)
        cluster.kill(run.pods("agent")[0])
        _wait_until_solved(run)
        _assert_no_secret_is_printed(cluster, run)


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_a_pod_is_killed_every_few_seconds(start_cluster: Start) -> None:
    with _long_run(start_cluster, "killed", "--agents", "2") as run:
        for role in ("agent", "eval", "agent", "redis", "agent", "learner"):
            run.cluster.wait(lambda: run.pods(role)[0].is_ready, f"{role}: ready", TIMEOUT_S)  # noqa: B023
            run.cluster.delete(run.pods(role)[0], grace_s=0)  # at once; another one is made at another address
            run.cluster.go_on(8.0)
        _wait_until_solved_again(run)


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_redis_comes_back_with_everything(start_cluster: Start) -> None:
    """With users, TLS and its file on a volume, killed at once and stopped in order."""
    with _long_run(start_cluster, "redis", "--agents", "2", "--tls") as run:
        for grace_s in (0, None):
            (redis,) = run.pods("redis")
            before = _progress(run)
            run.cluster.delete(redis, **({} if grace_s is None else {"grace_s": grace_s}))
            run.cluster.wait(
                lambda: any(pod.is_ready for pod in run.pods("redis") if pod is not redis),  # noqa: B023
                "Redis",
                TIMEOUT_S,
            )
            # Env steps are in its file; updates are in the heartbeats, which the learner sends again.
            assert _progress(run)[1] >= before[1]
            run.cluster.wait(lambda: _progress(run)[0] >= before[0], "the learner's updates", TIMEOUT_S)  # noqa: B023
            log = run.pods("redis")[0].logs()
            assert "Ready to accept connections" in log
            assert "refused" not in log
        _wait_until_solved_again(run)


def _progress(run: RenderedRun) -> tuple[int, int]:
    """Updates and env steps, as Redis has them."""
    done = run.cluster.execute(run.pods("redis")[0], "surreal", "status", run.preset, "--json")
    status = json.loads(done.stdout)
    return status["updates"], status["env_steps"]


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_agents_are_replaced_one_after_the_other(start_cluster: Start) -> None:
    with _long_run(start_cluster, "rolling", "--agents", "3") as run:
        old = {pod.name for pod in run.pods("agent")}
        ready = []
        run.cluster.restart("Deployment", "agents")
        while not run.cluster.is_rolled_out("Deployment", "agents"):
            run.cluster.go_on(0.2)
            ready.append(sum(pod.is_ready for pod in run.pods("agent")))
        assert min(ready) >= 2
        assert not old & {pod.name for pod in run.pods("agent")}
        drained = [text for _, text in run.cluster.events if any(name in text for name in old) and "status" in text]
        assert [text.rpartition(" ")[2] for text in drained] == [str(DRAINED)] * 3, drained
        _wait_until_solved_again(run)


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
def test_a_node_is_lost(start_cluster: Start) -> None:
    with _long_run(start_cluster, "node", "--agents", "3") as run:
        (learner,) = run.pods("learner")
        run.cluster.lose(learner.place.node)
        run.cluster.wait(lambda: run.pods("learner") != [learner], "a learner elsewhere", TIMEOUT_S)
        _wait_until_solved_again(run)


@long_only
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 300)
@pytest.mark.parametrize("role", ["agent", "learner", "redis"])
def test_a_link_is_cut(start_cluster: Start, role: str) -> None:
    with _long_run(start_cluster, f"link-{role}", "--agents", "2") as run:
        _with_cut_link(run, role, 30.0)
        _wait_until_solved_again(run)


@contextmanager
def _long_run(start_cluster: Start, name: str, *options: str) -> Iterator[RenderedRun]:
    """A run on three nodes that ends when it is told to, however quick the machine, and all of whose parts work."""
    cluster = start_cluster(namespace=f"surreal-{PRESET}", nodes=("node-0", "node-1", "node-2"))
    settings = (*SETTINGS, "run.stop_at_return=null")
    with rendered_run(cluster, PRESET, settings, REPORTS / f"{name}.txt", *options) as run:
        cluster.wait(lambda: bool(run.rounds()), "a first score", TIMEOUT_S)
        cluster.wait(lambda: all(pod.is_ready for pod in cluster.pods()), "all pods ready", TIMEOUT_S)
        yield run


def _with_cut_link(run: RenderedRun, role: str, duration_s: float) -> None:
    pod = run.pods(role)[-1]
    run.cluster.cut(pod)
    run.cluster.go_on(duration_s)
    run.cluster.mend(pod)


def _wait_until_solved(run: RenderedRun) -> None:
    """Wait for the end that only a solved CartPole brings, and look at what there is then."""
    result = _wait_until_over(run)
    assert result["reason"].startswith("stop_at_return:")
    assert max(entry["mean_return"] for entry in run.rounds()) >= GOAL


def _wait_until_solved_again(run: RenderedRun) -> None:
    """Wait for a round after all disturbances that solves CartPole, and end the run as docs/kubernetes.md says."""
    before = len(run.rounds())

    def is_solved() -> bool:
        return any(entry["mean_return"] >= GOAL for entry in run.rounds()[before:])

    run.cluster.wait(is_solved, "a solved CartPole", TIMEOUT_S)
    done = run.cluster.execute(run.pods("redis")[0], "surreal", "stop", run.preset)
    assert done.returncode == 0, done.stdout
    assert _wait_until_over(run)["reason"] == "surreal stop"


def _wait_until_over(run: RenderedRun) -> dict[str, Any]:
    run.cluster.wait(lambda: bool(run.result()), "the end of the run", TIMEOUT_S)
    run.cluster.say("the run has ended")
    result = run.result()
    assert result["status"] == "finished", result
    versions = [entry["version"] for entry in run.rounds()]
    assert versions == sorted(versions)
    assert (run.folder / "eval" / "best.safetensors").exists()
    # Everybody gets to know, whoever was cut off, and stays, so that nothing starts the run again.
    for role in ("agent", "learner", "eval"):
        run.cluster.wait(lambda: all(run.health(pod) == OVER for pod in run.pods(role)), f"{role}: the end", TIMEOUT_S)  # noqa: B023
    assert all(pod.phase == "Running" for pod in run.cluster.pods())
    return result


def _assert_only_the_run_reaches_redis(cluster: Cluster, run: RenderedRun) -> None:
    """A pod of the same namespace that is no pod of the run is kept out."""
    cluster.apply(small.pod("stranger"))
    cluster.wait(lambda: bool(cluster.pods("app=stranger")) and cluster.pods("app=stranger")[0].is_ready, "a stranger")
    (stranger,), (redis,), (agent, *_) = cluster.pods("app=stranger"), run.pods("redis"), run.pods("agent")
    connect = small.python(small.CONNECT, redis.place.address, "6379")
    assert cluster.execute(agent, *connect).stdout == "connected\n"
    assert "timed out" in cluster.execute(stranger, *connect).stdout
    cluster.delete(stranger, grace_s=0)


def _assert_no_secret_is_printed(cluster: Cluster, run: RenderedRun) -> None:
    secrets = run.secrets
    assert len(secrets) >= 2
    for pod in cluster.pods():
        text = pod.logs()
        assert not [secret for secret in secrets if secret in text], pod.name
