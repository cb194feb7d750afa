"""Several parameter servers: parts of one version, agreement after a restart, and steps that are one server's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from surreal.base.errors import GroupChangedError
from surreal.base.pytorch import Module
from surreal.distributed import RedisClient, TorchBroadcaster, TorchListener
from surreal.distributed.gradients.encoding import assign_parameters
from surreal.distributed.gradients.group import Formation, ServerGroup
from surreal.distributed.gradients.queue import Gradient, GradientQueue
from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.gradients.store import GradientHead, GradientStore
from surreal.distributed.parameters.parts import PolicyPart
from surreal.learner import GradientLearner
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model import QFunction


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 2)
        self.second = torch.nn.Linear(2, 2)

    def fill(self, value: float) -> Net:
        with self.lock, torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(value)
        return self

    def values(self) -> set[float]:
        with self.lock:
            return {float(value) for parameter in self.parameters() for value in parameter.detach().flatten()}


PARTS = [
    PolicyPart(0, 2, frozenset({"first.weight", "first.bias"})),
    PolicyPart(1, 2, frozenset({"second.weight", "second.bias"})),
]


def test_an_agent_gets_the_parts_of_one_version_only(client: RedisClient) -> None:
    models = [Net(), Net()]
    broadcasters = [TorchBroadcaster(client, model, part=part) for model, part in zip(models, PARTS, strict=True)]
    listener = TorchListener(client, Net().fill(-1), shards=2)
    broadcasters[0].broadcast(models[0].fill(1))
    assert not listener.update_once()
    broadcasters[1].broadcast(models[1].fill(1))
    assert listener.update_once()
    assert (listener.version, listener.model.values()) == (1, {1.0})
    broadcasters[1].broadcast(models[1].fill(2))
    assert not listener.update_once()
    newcomer = TorchListener(client, Net(), shards=2)
    assert newcomer.update_once()  # the older part is still there
    assert (newcomer.version, newcomer.model.values()) == (1, {1.0})
    broadcasters[0].broadcast(models[0].fill(2))
    assert listener.update_once()
    assert (listener.version, listener.model.values()) == (2, {2.0})


def test_agents_follow_servers_in_step_and_never_mix_versions(client: RedisClient) -> None:
    listener = TorchListener(client, Net().fill(0), shards=2, poll_interval_s=60)
    barrier = threading.Barrier(2)
    mixed: list[set[float]] = []

    def publish(i: int) -> None:
        model = Net()
        broadcaster = TorchBroadcaster(client, model, part=PARTS[i])
        for value in range(1, 31):
            barrier.wait(30)
            assert broadcaster.broadcast(model.fill(value)) == value

    listener.run_listener_thread()
    try:
        with ThreadPoolExecutor(2) as pool:
            published = [pool.submit(publish, i) for i in range(2)]
            while not all(each.done() for each in published):
                values = listener.model.values()  # type: ignore[operator]
                mixed += [values] if len(values) > 1 else []
        assert not [each.result() for each in published if each.exception()]
        deadline = threading.Event()
        for _ in range(1000):
            if listener.version == 30:
                break
            deadline.wait(0.02)
        assert listener.model.values() == {30.0}  # type: ignore[operator]
        assert not mixed
    finally:
        listener.close()


def test_parts_that_redis_lost_are_published_again_under_their_version(client: RedisClient) -> None:
    models = [Net().fill(3), Net().fill(3)]
    broadcasters = [
        TorchBroadcaster(client, model, part=part, lease_s=0.001) for model, part in zip(models, PARTS, strict=True)
    ]
    for broadcaster in broadcasters:
        broadcaster.propose(6)
        broadcaster.broadcast()
    client.redis.delete(*[broadcaster._keys.params for broadcaster in broadcasters])
    broadcasters[0].maintain()
    broadcasters[1].broadcast(models[1].fill(4))  # which went on without having noticed
    broadcasters[0].broadcast(models[0].fill(4))
    listener = TorchListener(client, Net(), shards=2)
    assert listener.update_once()
    assert (listener.version, listener.model.values()) == (8, {4.0})


def join(group: ServerGroup, states: list[str], version: int = 0, *, is_new: bool = True) -> Formation:
    return group.join(states, version, is_new=is_new)


def make_groups(client: RedisClient, number: int = 2, **options: Any) -> list[ServerGroup]:
    return [ServerGroup(client, shard=i, shards=number, **options) for i in range(number)]


def test_servers_agree_on_the_newest_state_that_all_have(client: RedisClient) -> None:
    groups = make_groups(client, 3)
    offers = [(["10:a", "20:a", "30:a"], 5), (["10:a", "20:a"], 9), (["20:a", "30:a", "35:b"], 2)]
    with ThreadPoolExecutor(3) as pool:
        formations = list(pool.map(lambda pair: join(pair[0], *pair[1]), zip(groups, offers, strict=True)))
    assert len(set(formations)) == 1
    assert formations[0][1:] == ("20:a", 9)
    with ThreadPoolExecutor(3) as pool:
        values = list(pool.map(lambda i: [groups[i].gather(b"%d%d" % (k, i)) for k in range(5)], range(3)))
    assert values[0] == values[1] == values[2] == [[b"%d%d" % (k, i) for i in range(3)] for k in range(5)]


def test_a_server_that_restarts_makes_the_others_join_it(client: RedisClient) -> None:
    groups = make_groups(client)
    queues = [GradientQueue(client, shard=i, shards=2, group=group) for i, group in enumerate(groups)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda group: join(group, []), groups))
    sender = GradientSender(client, shards=2, parameters={"model": {"a": torch.ones(3), "b": torch.ones(2)}})
    gradient = {"model": {"a": torch.ones(3), "b": torch.ones(2)}}
    sender.push(gradient, version=0, env_steps=1)
    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(lambda queue: queue.take(10.0), queues))
    assert [sorted(each.tensors["model"]) for each in taken if each] == [["a"], ["b"]]
    sender.push(gradient, version=0, env_steps=1)  # waits in the queues when one restarts
    restarted = ServerGroup(client, shard=1, shards=2)
    with ThreadPoolExecutor(2) as pool:
        reborn = pool.submit(join, restarted, ["4:x"], 3)
        with pytest.raises(GroupChangedError):
            while True:
                queues[0].take(0.05)
        survivor = join(groups[0], ["4:x", "5:x"], 7, is_new=False)
        assert reborn.result() == survivor
    assert (survivor.state, survivor.version) == ("4:x", 7)
    queues[1] = GradientQueue(client, shard=1, shards=2, group=restarted)
    sender.push(gradient, version=1, env_steps=1)
    with ThreadPoolExecutor(2) as pool:
        versions = [each.version for each in pool.map(lambda queue: queue.take(10.0), queues) if each]
    assert versions == [1, 1]
    assert queues[0].run_metrics()["gradients/waiting_bytes"] == 0
    assert client.redis.hget(client.shard_keys().meta, "steps") == b"3"


def test_what_one_server_refuses_no_server_applies(client: RedisClient) -> None:
    groups = make_groups(client)
    queues = [GradientQueue(client, shard=i, shards=2, group=group) for i, group in enumerate(groups)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda group: join(group, []), groups))
    gradient = {"model": {"a": torch.ones(3), "b": torch.ones(2)}}
    for queue in queues:
        queue.expect(gradient)
    sender = GradientSender(client, shards=2, parameters=gradient)
    sender.push(gradient, version=0, env_steps=1)
    keys = GradientStore(client, "default").keys
    client.redis.set(keys.block(f"{sender.sender_id}-1", 1, 0), b"broken")
    sender.push(gradient, version=1, env_steps=1)
    with ThreadPoolExecutor(2) as pool:
        taken = list(pool.map(lambda queue: queue.take(10.0), queues))
    assert [each.version for each in taken if each] == [1, 1]
    assert [queue.metrics()["gradients/refused_broken_total"] for queue in queues] == [1, 1]
    assert GradientHead.decode(GradientHead(1, 2, 3, 4, "s", 1, 9).encode()) == GradientHead(1, 2, 3, 4, "s", 1, 9)


class Fits(GradientLearner):
    def learn(self, i: int, batch: Any) -> dict[str, Any]:
        return {}


def learner_of() -> Fits:
    learner = Fits(QFunction([16], action_space=1, seed=0), gradients_norm_clipping=0.1)
    learner.model(torch.zeros(1, 4))
    learner.state_dict()
    return learner


@pytest.mark.parametrize("combine", ["avg", "dc"])
def test_two_servers_give_bit_equal_parameters_to_one(client: RedisClient, combine: str) -> None:
    one, shape = learner_of(), learner_of()
    groups = shape.parameter_groups()
    assignment = assign_parameters(groups, 2)
    torch.manual_seed(0)
    pushes = [{"model": {name: torch.randn_like(each) for name, each in groups["model"].items()}} for _ in range(8)]
    sender = GradientSender(client, shards=2, parameters=groups)
    rule: dict[str, Any] = {"combine": combine, "num_gradients": 2, "dc_lambda": 0.5}

    def serve(i: int) -> None:
        model = learner_of().model
        learner = Fits(model, gradients_norm_clipping=0.1)
        learner.state_dict()
        group = ServerGroup(client, shard=i, shards=2)
        queue = GradientQueue(client, shard=i, shards=2, group=group)
        queue.expect(groups)
        server = ParameterServer(learner, names=assignment[i], gather=group.gather, **rule)
        broadcaster = TorchBroadcaster(client, model, part=PolicyPart(i, 2, server.published_names()))
        join(group, [])
        server.published(broadcaster.broadcast())
        done = 0
        while done < len(pushes):
            gradient = queue.take(10.0)
            assert gradient is not None
            done += 1
            if server.step(gradient):
                version = broadcaster.broadcast()
                queue.tell_version(version)
                server.published(version)

    single = ParameterServer(one, **rule)
    single.published(1)
    with ThreadPoolExecutor(2) as pool:
        serving = [pool.submit(serve, i) for i in range(2)]
        assert TorchListener(client, shape.model, shards=2).wait_for_first(30)
        for i, push in enumerate(pushes):
            assert sender.push(push, version=1 + i // 4, env_steps=2).status == "ok"
        for each in serving:
            each.result(60)
    version = 1
    for i, push in enumerate(pushes):
        tensors = {"model": {name: each.clone() for name, each in push["model"].items()}}
        if single.step(Gradient(tensors, 1 + i // 4, 2, 2 * (i + 1), 0, 1, "")):
            version += 1
            single.published(version)
    listener = TorchListener(client, learner_of().model, shards=2)
    assert listener.update_once()
    assert listener.version == version
    expected = one.model.tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in listener.model.tensors().items())


def test_a_server_that_is_restarted_goes_on_with_higher_versions_and_repeats_no_gradient(client: RedisClient) -> None:
    sender = GradientSender(client)
    push = {"model": {name: torch.ones_like(each) for name, each in learner_of().parameter_groups()["model"].items()}}
    versions: list[int] = []

    def live(state: Any, number: int) -> tuple[Any, list[int]]:
        """A server that takes some gradients, and saves its state after the first; then it dies."""
        learner = learner_of()
        if state is not None:
            learner.load_state_dict(state)
        server, queue = ParameterServer(learner), GradientQueue(client)
        queue.expect(learner.parameter_groups())
        broadcaster = TorchBroadcaster(client, learner.model, lease_s=0.001)
        broadcaster.propose(learner.version)
        versions.append(broadcaster.broadcast())
        queue.tell_version(versions[-1])
        taken = []
        for i in range(number):
            gradient = queue.take(5.0)
            assert gradient is not None
            taken.append(gradient.version)
            if i == number - 1:
                break  # killed before it is applied
            assert server.step(gradient)
            versions.append(broadcaster.broadcast())
            if i == 0:
                found = learner.state_dict()
                state = {**found, "tensors": {name: each.clone() for name, each in found["tensors"].items()}}
        return state, taken

    for number in range(6):
        sender.push(push, version=number, env_steps=1)
    state, first = live(None, 3)
    state, second = live(state, 2)
    _, third = live(state, 1)
    assert [*first, *second, *third] == [0, 1, 2, 3, 4, 5]
    assert versions == sorted(set(versions))
    assert state["state"]["updates"] == 2
    assert state["state"]["global_step"] == 4  # when the gradient that was applied last was pushed
