"""The parameter server: its steps are the learner's own, and several servers are one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from surreal.base.errors import ContractError, DivergedError
from surreal.base.types import Batch
from surreal.distributed.gradients.encoding import assign, assign_parameters
from surreal.learner import GradientLearner
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model import QFunction

MakeBatch = Callable[..., Batch]


class TwoGroups(GradientLearner):
    """Fits its model to rewards, and a critic of its own to twice the rewards."""

    def build(self) -> None:
        self.critic = QFunction([6], action_space=1, seed=1)
        self.critic(torch.zeros(1, 4))
        self.keep("critic", self.critic)
        self.optimize_group("actor", self.model.named_parameters())
        self.optimize_group("critic", self.critic.named_parameters())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {
            "actor": (self.model(batch.obs)[:, 0] - batch.reward).square().mean(),
            "critic": (self.critic(batch.obs)[:, 0] - 2 * batch.reward).square().mean(),
        }

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        found = [self.gradients(loss, group) for group, loss in self.losses(batch).items()]
        self.stepper.step(found)
        return {}


class Pushed(NamedTuple):
    tensors: dict[str, dict[str, Tensor]]
    version: int = 0
    global_step: int = 0


def made(**options: Any) -> Any:
    learner = TwoGroups(QFunction([6], action_space=1, seed=0), **options)
    learner.model(torch.zeros(1, 4))
    learner.state_dict()  # which makes it ready
    return learner


def gradient_of(learner: Any, batch: Batch, **more: Any) -> Pushed:
    losses = learner.losses(batch)
    return Pushed({group: learner.gradients(loss, group).tensors for group, loss in losses.items()}, **more)


def parameters(learner: Any) -> dict[str, Tensor]:
    named = {**learner.model.tensors(), **{f"critic/{name}": each for name, each in learner.critic.tensors().items()}}
    return {name: tensor.clone() for name, tensor in named.items()}


def is_same(one: Any, other: Any) -> bool:
    first, second = parameters(one), parameters(other)
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("max_norm", [None, 0.01])
def test_fifo_steps_as_the_learner_itself_in_order(make_batch: MakeBatch, max_norm: float | None) -> None:
    alone, served = made(gradients_norm_clipping=max_norm), made(gradients_norm_clipping=max_norm)
    server = ParameterServer(served)
    for i in range(4):
        pushed = gradient_of(alone, make_batch(i))
        alone.optimize(i, make_batch(i))
        assert server.step(pushed)
    assert is_same(alone, served)
    assert alone.updates == served.updates == 4


def test_mean_of_gradients_is_the_step_of_one_big_batch(make_batch: MakeBatch) -> None:
    whole, served = made(), made()
    server = ParameterServer(served, combine="avg", num_gradients=4)
    batches = [make_batch(i) for i in range(4)]
    assert [server.step(gradient_of(served, batch)) for batch in batches] == [False, False, False, True]
    big = batches[0]._replace(
        obs=torch.cat([batch.obs for batch in batches]), reward=torch.cat([batch.reward for batch in batches])
    )
    whole.optimize(0, big)
    for name, tensor in parameters(whole).items():
        torch.testing.assert_close(parameters(served)[name], tensor)
    assert served.updates == 1


def test_a_stale_gradient_is_compensated_by_its_formula(make_batch: MakeBatch) -> None:
    expected, served = made(gradients_norm_clipping=None), made(gradients_norm_clipping=None)
    server = ParameterServer(served, combine="dc", dc_lambda=0.5)
    server.published(1)
    stale = gradient_of(served, make_batch(9), version=1)
    before = {name: {key: each.clone() for key, each in group.items()} for name, group in stale.tensors.items()}
    then = {group: {name: each.clone() for name, each in found.items()} for group, found in groups(served).items()}
    for i in range(3):
        for learner in (expected, served):
            fresh = gradient_of(learner, make_batch(i), version=2 + i)
            ParameterServer(learner).step(fresh) if learner is expected else server.published(2 + i)
            if learner is served:
                server.step(fresh)
    assert is_same(expected, served)  # what is not stale is not corrected
    now = groups(served)
    corrected = {
        group: {name: g + 0.5 * g * g * (now[group][name] - then[group][name]).detach() for name, g in found.items()}
        for group, found in before.items()
    }
    ParameterServer(expected).step(Pushed(corrected))
    server.step(stale)
    for name, tensor in parameters(expected).items():
        torch.testing.assert_close(parameters(served)[name], tensor, rtol=1e-6, atol=1e-7)


def groups(learner: Any) -> Any:
    return learner.parameter_groups()


class Exchange:
    """What `ServerGroup.gather` is, for servers in threads of one process."""

    def __init__(self, number: int) -> None:
        self._barrier = threading.Barrier(number)
        self._values = [b""] * number

    def member(self, i: int) -> Callable[[bytes], list[bytes]]:
        def gather(value: bytes) -> list[bytes]:
            self._values[i] = value
            self._barrier.wait(30)
            found = list(self._values)
            self._barrier.wait(30)
            return found

        return gather


@pytest.mark.parametrize("combine", ["fifo", "avg", "dc"])
@pytest.mark.parametrize("number", [2, 3])
def test_several_servers_are_bit_equal_to_one(make_batch: MakeBatch, combine: str, number: int) -> None:
    options = {"gradients_norm_clipping": 0.05, "use_linear_schedule": True, "max_global_step": 100}
    source, single = made(), made(**options)
    pushes = [gradient_of(source, make_batch(i), version=i // 2, global_step=10 * i) for i in range(8)]
    rule = {"combine": combine, "num_gradients": 3, "dc_lambda": 2.0}
    one = ParameterServer(single, **rule)
    assignment = assign_parameters(single.parameter_groups(), number)
    exchange = Exchange(number)
    learners = [made(**options) for _ in range(number)]
    several = [
        ParameterServer(learner, names=names, gather=exchange.member(i), **rule)
        for i, (learner, names) in enumerate(zip(learners, assignment, strict=True))
    ]

    def serve(server: ParameterServer, names: frozenset[str] | None) -> None:
        for i, pushed in enumerate(pushes):
            tensors = {
                group: {name: each.clone() for name, each in found.items() if not names or f"{group}/{name}" in names}
                for group, found in pushed.tensors.items()
            }
            if server.step(pushed._replace(tensors=tensors)):
                server.published(i)

    serve(one, None)
    threads = [threading.Thread(target=serve, args=pair) for pair in zip(several, assignment, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"{group}/{name}": each for group, found in groups(single).items() for name, each in found.items()}
    for server, names in zip(several, assignment, strict=True):
        assert server.learner.updates == single.updates == (2 if combine == "avg" else 8)
        found = groups(server.learner)
        assert {f"{group}/{name}" for group in found for name in found[group]} == names
        for name in names:
            group, _, rest = name.partition("/")
            assert torch.equal(found[group][rest], expected[name]), name
    published = [server.published_names() for server in several]
    assert frozenset().union(*published) == one.published_names() == frozenset(single.model.tensors())
    assert sum(map(len, published)) == len(single.model.tensors())


def test_a_servers_part_goes_through_a_checkpoint(make_batch: MakeBatch) -> None:
    first, second, source = made(), made(), made()
    names = assign_parameters(first.parameter_groups(), 2)[0]
    own = [ParameterServer(learner, names=names, gather=lambda value: [value]) for learner in (first, second)]

    def part(pushed: Pushed) -> Pushed:
        return pushed._replace(
            tensors={
                group: {name: each.clone() for name, each in found.items() if f"{group}/{name}" in names}
                for group, found in pushed.tensors.items()
            }
        )

    own[0].step(part(gradient_of(source, make_batch(0), global_step=50)))
    state = first.state_dict()
    second.load_state_dict({**state, "tensors": {name: each.clone() for name, each in state["tensors"].items()}})
    own[1].reset()
    for server in own:
        server.step(part(gradient_of(source, make_batch(1), global_step=60)))
    assert is_same(first, second)
    assert (second.updates, second.global_step) == (2, 60)


def test_gradients_that_are_not_finite_change_nothing_and_end_learning_when_they_go_on(make_batch: MakeBatch) -> None:
    learner, untouched = made(), made()
    server = ParameterServer(learner)
    bad = gradient_of(learner, make_batch())
    bad.tensors["actor"][next(iter(bad.tensors["actor"]))].fill_(torch.nan)
    bad.tensors.pop("critic")
    with pytest.raises(DivergedError):
        for _ in range(learner.skipped_limit):
            server.step(bad)
    assert is_same(learner, untouched)


def test_a_gradient_of_another_model_is_refused(make_batch: MakeBatch) -> None:
    with pytest.raises(ContractError, match="other/w"):
        ParameterServer(made()).step(Pushed({"other": {"w": torch.ones(1)}}))


def test_assignment_is_balanced_by_bytes_and_does_not_depend_on_order() -> None:
    sizes = {"a": 100, "b": 60, "c": 50, "d": 10, "e": 0}
    parts = assign(sizes, 2)
    assert parts == assign(dict(reversed(sizes.items())), 2)
    assert sorted(name for part in parts for name in part) == sorted(sizes)
    assert abs(sum(sizes[name] for name in parts[0]) - sum(sizes[name] for name in parts[1])) <= 10
    assert assign({"a": 1}, 3) == [frozenset("a"), frozenset(), frozenset()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"combine": "sum"}, "combine is 'sum'; it must be one of fifo, avg, dc"),
        ({"dc_lambda": -1.0}, "dc_lambda is -1"),
        ({"names": frozenset()}, "both"),
        ({"combine": "avg", "num_gradients": 0}, "num_gradients"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ParameterServer(made(), **options)
