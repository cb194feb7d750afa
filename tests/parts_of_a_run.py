"""All parts of a run that talk to Redis, in this process and without threads: what each kind of process does with it.

    run = PartsOfARun(lambda user: RedisClient(address, run="r", username=user, ...), tmp_path)
    for act in run.acts:
        act.do()

The acts come in the order of a run that starts, goes on and ends; each may be repeated. Every one is a user's, of the
table in `surreal/distributed/connection/rights.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from surreal.base.errors import CallError
from surreal.base.pytorch import Module
from surreal.config import Config, load_config
from surreal.distributed import CallServer, RedisClient, RemoteServer, TorchBroadcaster, TorchListener, remote
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.gradients.group import ServerGroup
from surreal.distributed.gradients.queue import GradientQueue
from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.parameters.parts import PolicyPart
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.plugins.doctor.look import read_records
from surreal.plugins.runs.top import Follower
from surreal.replay import UniformReplay
from surreal.replay.archive import export_replay, import_replay
from surreal.replay.stream.info import replay_info
from surreal.run.evaluation import EpisodeScore, EvaluationRound
from surreal.run.process import registry
from surreal.run.process.attributes import EnvironmentAttributes
from surreal.run.process.liveness import Claim
from surreal.run.self_play.exchange import Games, LeagueExchange
from surreal.run.session.score_sharing import ScoreCollector, ScoreSender
from surreal.run.session.scores import RoundFile
from surreal.run.view.reader import RunReader, run_status


class Act(NamedTuple):
    """Something that a process does, or two of them: names with a blank between them."""

    user: str
    name: str
    do: Callable[[], object]


class Net(Module):
    """A small model; with `part_bytes=50`, its parameters go in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 2)
        self.second = torch.nn.Linear(2, 2)


class Target:
    """What agents call."""

    @remote
    def double(self, number: float) -> float:
        return 2 * number


GRADIENT = {"model": {"a": torch.ones(3), "b": torch.ones(2)}}
_PARTS = [
    PolicyPart(0, 2, frozenset({"first.weight", "first.bias"})),
    PolicyPart(1, 2, frozenset({"second.weight", "second.bias"})),
]
_ROLES = {"agent": "agent-0", "learner": "learner", "parameter-server": "ps", "evaluation": "eval"}


class PartsOfARun:
    """One of each.

    Args:
        connect: gives a client of the run for a user.
        folder: for what the run leaves.
        patience_s: how long parameter servers wait for each other, s.
    """

    def __init__(self, connect: Callable[[str], RedisClient], folder: Path, *, patience_s: float = 10.0) -> None:
        self._connect, self._folder = connect, folder
        self.config: Config = load_config("cartpole-dqn")
        self.clients = {user: connect(user) for user in (*_ROLES, "observer", "launcher")}
        agent, learner, server, evaluation = (self.clients[user] for user in _ROLES)
        self.sender = ExpSender(agent, chunk_steps=4, max_delay_s=60.0, on_full="drop")
        options = {"batch_size": 4, "start_size": 1, "gamma": 0.9, "prefetch": 1, "seed": 1}
        self.replay = UniformReplay(learner, capacity=8, **options)  # small: it evicts
        self.remote = UniformReplay(learner, capacity=8, observations="remote", is_owner=False, **options)
        self.broadcaster = TorchBroadcaster(learner, Net(), part_bytes=50, lease_s=0.5)
        self.listener = TorchListener(agent, Net(), poll_interval_s=60)
        self.eval_listener = TorchListener(evaluation, Net(), poll_interval_s=60)
        models = [Net(), Net()]
        self.servers = [
            TorchBroadcaster(server, model, policy="shared", part=part, part_bytes=part_bytes, lease_s=0.5)
            for model, part, part_bytes in zip(models, _PARTS, (20, 2000), strict=True)
        ]
        self.shared_listener = TorchListener(agent, Net(), policy="shared", shards=2, poll_interval_s=60)
        self.gradients = GradientSender(
            agent, policy="shared", shards=2, parameters=GRADIENT, wait_timeout_s=patience_s
        )
        self.groups = [ServerGroup(server, policy="shared", shard=i, shards=2, timeout_s=patience_s) for i in range(2)]
        self.queues = [
            GradientQueue(server, policy="shared", shard=i, shards=2, group=group)
            for i, group in enumerate(self.groups)
        ]
        for queue in self.queues:
            queue.expect(GRADIENT)
        self.call_server = CallServer(learner, Target())
        self.book = RoundFile(folder / "eval")
        self.scores = ScoreCollector(learner, folder / "learner" / "eval")
        self.collector = Collector(learner, folder / "learner", tensorboard=False)
        self.league = LeagueExchange(learner, "default")
        self.telemetry = {user: Telemetry(self.clients[user], user, name) for user, name in _ROLES.items()}
        self.number = 0
        self.acts = [
            *self._joining(),
            Act("agent", "sends experience", self.send_experience),
            Act("learner", "reads and evicts experience", self.read_experience),
            Act("learner", "publishes", self.publish),
            Act("agent", "follows parameters", self.listener.update_once),
            Act("evaluation", "follows parameters", self.eval_listener.update_once),
            Act("agent", "listens for notices", self.listener.step),
            Act("parameter-server", "agrees", self.agree),
            Act("agent", "pushes a gradient", self.push_gradient),
            Act("parameter-server", "takes gradients", self.take_gradients),
            Act("parameter-server", "publishes", self.publish_parts),
            Act("agent", "follows the parts", self.shared_listener.update_once),
            Act("agent learner", "calls", self.call),
            Act("evaluation", "sends scores", self.send_scores),
            Act("learner", "brings scores", self.scores.step),
            Act("learner", "keeps a league", self.keep_league),
            Act("agent", "plays in it", self.play_in_league),
            *(Act(user, "sets attributes", partial(self.set_attributes, user)) for user in _ROLES),
            *(Act(user, "reports", telemetry.step) for user, telemetry in self.telemetry.items()),
            Act("learner", "collects", lambda: self.collector.step(0.0)),
            Act("observer", "looks", lambda: run_status(self.clients["observer"])),
            Act("observer", "looks at the runs", self.look_at_runs),
            Act("observer", "follows", self.follow),
            Act("observer", "looks at the replay", lambda: replay_info(self.clients["observer"])),
            Act("observer", "examines", lambda: list(read_records(self.clients["observer"], 60.0))),
            Act("launcher", "exports the replay", self.export),
            Act("launcher", "imports a replay", self.import_replay),
        ]

    # -- what they do ------------------------------------------------------------------------------------------------

    def _joining(self) -> list[Act]:
        acts = []
        for user, name in {"launcher": "launcher", **_ROLES}.items():
            client = self.clients[user]
            claim = Claim(client, name)
            registrant = registry.Registrant(name, leads=user in ("launcher", "learner", "parameter-server"))
            acts += [
                Act(
                    user,
                    "looks for a run",
                    lambda client=client: registry.require_fresh(client, "default"),
                ),
                Act(user, "takes its name", claim.try_take),
                Act(
                    user,
                    "agrees with the run",
                    lambda client=client, registrant=registrant: registry.register(client, self.config, registrant),
                ),
                Act(
                    user,
                    "stays in the run",
                    lambda client=client, registrant=registrant: registry.compare(client, self.config, registrant),
                ),
                Act(user, "asks why the run ends", lambda client=client: registry.stop_reason(client)),
                Act(user, "ends the run", lambda client=client: registry.request_stop(client, "tested")),
                Act(user, "resumes the run", lambda client=client: registry.clear_stop(client)),
            ]
        return acts

    def send_experience(self) -> None:
        for _ in range(8):
            obs = [np.array([self.number + i, 1.0], np.float32) for i in range(2)]
            self.number += 1
            self.sender.send(obs, 1, 1.0, False)
        self.sender.flush()

    def read_experience(self) -> None:
        for replay in (self.replay, self.remote):
            for _ in range(3):
                replay.pointer_queue.enqueue_step(waits=False)
                for _ in range(10):
                    replay.step(timeout_s=0.0)
            replay.dequeue(0.01)

    def set_attributes(self, user: str) -> None:
        callback = "callbacks=[{class: surreal.run.observers.StopWithoutImprovement}]"
        attributes = EnvironmentAttributes(load_config("cartpole-dqn", [callback]), self.clients[user])
        attributes.set({"gravity": 9.8})
        with ExitStack() as stack:
            attributes.follow(stack)

    def publish(self) -> None:
        for _ in range(2):
            self.broadcaster.broadcast(message="x")
            self.broadcaster._next_maintenance = 0.0
            self.broadcaster.maintain()

    def lose_patience(self, patience_s: float) -> None:
        """Wait no longer than that for other servers, and for room, from now on."""
        self.gradients.wait_timeout_s = patience_s
        for group in self.groups:
            group.timeout_s = patience_s

    def agree(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda group: group.join([], 0, is_new=True), self.groups))
            for number in range(3):
                list(pool.map(lambda group: group.gather(b"%d" % number), self.groups))  # noqa: B023

    def push_gradient(self) -> None:
        self.gradients.push(GRADIENT, version=0, env_steps=1)

    def take_gradients(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda queue: queue.take(0.05), self.queues))
        for queue in self.queues:
            queue.tell_version(1)
            queue.maintain()
            queue.run_metrics()

    def publish_parts(self) -> None:
        for broadcaster in self.servers:
            broadcaster.broadcast()
            broadcaster.broadcast()
            broadcaster._next_maintenance = 0.0
            broadcaster.maintain()

    def call(self) -> None:
        over = threading.Event()

        def serve() -> None:
            while not over.wait(0.005):
                self.call_server.serve()

        with ThreadPoolExecutor(1) as pool:
            serving = pool.submit(serve)
            try:
                with suppress(CallError):
                    RemoteServer(self.clients["agent"], timeout_s=0.3).double(2.0)
            finally:
                over.set()
        serving.result()

    def send_scores(self) -> None:
        self.number += 1
        result = EvaluationRound(self.book.rounds, self.number, (EpisodeScore(float(self.number), 10, 1),))
        is_best = self.book.add(result, {"x": torch.tensor([1.0])}, {}, {})
        ScoreSender(self.clients["evaluation"], self.book).send_newest(is_best=is_best)

    def keep_league(self) -> None:
        self.league.write_table({"versions": []})
        self.league.publish(Net(), 3)
        self.league.find_missing([3])
        self.league.remove(3)
        self.league.publish(Net(), 3)
        self.league.take_games()

    def play_in_league(self) -> None:
        exchange = LeagueExchange(self.clients["agent"], "default")
        exchange.read_table()
        exchange.report([Games(3, 1.0, 2)])
        exchange.fetch(3)

    def look_at_runs(self) -> None:
        registry.list_runs(self.clients["observer"])
        RunReader(self.clients["observer"], reads_all=True, has_counts=True, is_patient=True).read_all()

    def follow(self) -> None:
        follower = Follower(self.clients["observer"])
        follower.look()
        follower.limits()
        follower.trend(0.0)

    def export(self) -> None:
        self.number += 1
        export_replay(self.clients["launcher"], self._folder / f"archive-{self.number}")

    def import_replay(self) -> None:
        archives = sorted(self._folder.glob("archive-*"))
        if archives:
            import_replay(self.clients["launcher"], archives[-1], timeout_s=0.2)

    def close(self) -> None:
        """Give up everything; what is on its way is dropped."""
        self.sender.outbox.drop_all()
        for replay in (self.replay, self.remote):
            replay.stop()
            replay.join()
        for listener in (self.listener, self.eval_listener, self.shared_listener):
            listener.close()
        for queue in self.queues:
            queue.close()
        self.collector.close()
        for client in self.clients.values():
            client.close()
