"""Runs whose experience is spread over several servers, one of which dies; and whole runs in a Redis Cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_a_run_outlives_one_of_its_shards(workplace: Workplace, start_redis: Callable[..., Any]) -> None:
    servers = [start_redis(port=0) for _ in range(2)]
    addresses = json.dumps([server.address for server in servers])
    command = workplace.start(
        "run", "cartpole-dqn", "--set", f"redis.replay_address={addresses}", *workplace.endless, *workplace.fast_eval
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: workplace.knows() and workplace.status()["updates"] > 100, "learning")
    run = workplace.status()["run"]
    clients = [RedisClient(server.address, run=run) for server in servers]
    shards = ReplayShards(clients)
    for stream in shards.streams():  # two agents, two shards
        workplace.wait_for(lambda stream=stream: stream.counts().steps > 0, "experience on each")
    servers[1].kill()
    before = workplace.wait_for(lambda: now if (now := workplace.status())["updates"] > 0 else None, "a status")
    workplace.wait_for(lambda: learner_metric(workplace, "replay/shards_away_count") == 1, "the loss is counted")
    gone_on = before["env_steps"] + 2000
    workplace.wait_for(lambda: workplace.status()["env_steps"] > gone_on, "agents going on")
    workplace.wait_for(lambda: workplace.status()["updates"] > before["updates"] + 200, "the learner going on")
    servers[1].start()
    workplace.wait_for(lambda: learner_metric(workplace, "replay/shards_away_count") == 0, "the shard's return")
    workplace.wait_for(lambda: shards.stream(1).counts().live_steps > 500, "its use")
    assert learner_metric(workplace, "replay/shards_emptied_total") == 1
    command.interrupt()
    assert command.wait() == 130, command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["status"], result["restarts"]) == ("interrupted", 0), "no process had to be started again"
    workplace.assert_nothing_is_left()


def learner_metric(workplace: Workplace, name: str) -> float | None:
    learner = next(process for process in workplace.status()["processes"] if process["role"] == "learner")
    value = learner["metrics"].get(name)
    return None if value is None else float(value)


def test_a_run_in_a_redis_cluster(workplace: Workplace, redis_cluster: Any) -> None:
    run, address, shards = "in-a-cluster", redis_cluster.address, 3
    command = workplace.start(
        "run", "cartpole-dqn", "--redis", address, "--run", run, *workplace.endless, *workplace.fast_eval,
        "--set", f"replay.shards={shards}", "--set", "agent.count=3",
    )  # fmt: skip
    workplace.wait_for(lambda: workplace.knows(run, address), "the run's beginning")
    workplace.wait_for(lambda: workplace.status(run, address)["updates"] > 100, "learning")
    workplace.wait_for(lambda: workplace.status(run, address)["eval_return"] is not None, "evaluation")
    code, output = workplace.run("replay", "info", run, "--redis", address, "--json")
    assert code == 0, output
    infos = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [info["shard"] for info in infos] == list(range(shards))
    with RedisClient(address, run=run) as client:
        for stream in ReplayShards(client, shards).streams():
            workplace.wait_for(lambda stream=stream: stream.counts().steps > 0, "experience on each")
    code, output = workplace.run("status", run, "--redis", address)
    assert (code, "learner" in output) == (0, True), output
    command.interrupt()
    assert command.wait() == 130, command.output
    result = json.loads((workplace.folder / "runs" / run / "result.json").read_text())
    assert (result["status"], result["restarts"]) == ("interrupted", 0)
    code, output = workplace.run("stop", run, "--redis", address, "--delete")
    assert (code, "removed" in output) == (0, True), output
    for server in redis_cluster.servers:
        with server.client() as client:
            assert list(client.scan_iter(match=f"*{run}*")) == [], "nothing is left on any server"
