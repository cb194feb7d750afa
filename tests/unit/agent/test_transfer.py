"""Copies of an agent on a device: one of all observations there, one of all results back.

The copies are counted on the CPU; on a GPU that is here, the same agents act as on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.agent import Agent, DeterministicAgent, NoisyQAgent, PolicyAgent, QAgent, SamplingAgent
from surreal.agent.base import Acted
from surreal.agent.transfer import Transfer
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.config import load_config
from surreal.learner.stepping.devices import available_devices
from surreal.model import ActorCritic, DeterministicActorCritic, NoisyQFunction, QFunction, SoftActorCritic
from surreal.run.build import acting
from surreal.run.build.environments import build_spaces

CPU = torch.device("cpu")
HERE = [
    pytest.param(name, marks=pytest.mark.skipif(name not in available_devices(), reason=f"torch has no {name} here"))
    for name in ("cpu", "cuda:0", "mps")
]
OBS: dict[str, Any] = {
    "picture": np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5),
    "flags": (np.array([[True], [False]]), np.array([[1.5, 2.0], [3.0, -4.0]], np.float32)),
    "count": np.array([7, -8], np.int64),
}


class Counted(Transfer):
    """Counts copies, and keeps what they carried."""

    def __init__(self, device: torch.device = CPU) -> None:
        super().__init__(device)
        self.copies: list[str] = []

    def _upload(self, staged: torch.Tensor) -> torch.Tensor:
        self.copies.append(f"{len(staged)} bytes there")
        return super()._upload(staged)

    def _download(self, data: torch.Tensor) -> torch.Tensor:
        self.copies.append(f"{len(data)} bytes back")
        return super()._download(data)


@pytest.mark.parametrize("device", HERE)
def test_all_leaves_travel_in_one_copy_and_keep_values_dtypes_and_nesting(device: str) -> None:
    transfer = Counted(torch.device(device))
    moved = transfer.send(OBS)
    assert transfer.copies == ["80 bytes there"]  # 30, 2, 16 and 16 bytes, each rounded up to 16
    assert moved.keys() == OBS.keys() and isinstance(moved["flags"], tuple)
    for leaf, given in zip(
        (moved["picture"], *moved["flags"], moved["count"]), (OBS["picture"], *OBS["flags"], OBS["count"]), strict=True
    ):
        assert leaf.device.type == torch.device(device).type
        np.testing.assert_array_equal(leaf.cpu().numpy(), given, strict=True)


def test_the_next_turn_uses_the_buffer_again_and_leaves_the_last_one_unchanged() -> None:
    transfer = Transfer(CPU)
    first = transfer.send(np.ones((4, 3), np.float32))
    buffer = transfer._buffer.data_ptr()
    second = transfer.send(np.zeros((2, 3), np.float32))
    assert transfer._buffer.data_ptr() == buffer
    assert first.sum() == 12 and second.shape == (2, 3) and second.sum() == 0
    assert transfer.send(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_what_torch_cannot_hold_stays_as_it_is() -> None:
    raw = np.array([{"a": 1}], dtype=object)
    moved = Transfer(CPU).send({"raw": raw, "strided": np.arange(6.0)[::-2]})
    assert moved["raw"] is raw
    assert moved["strided"].tolist() == [5.0, 3.0, 1.0]


def test_mps_has_no_float64() -> None:
    transfer = Counted(torch.device("mps"))
    transfer._upload = lambda staged: staged  # type: ignore[method-assign]
    assert transfer.send(np.ones((2, 2))).dtype == torch.float32


@pytest.mark.parametrize("device", HERE)
def test_results_come_back_in_one_copy_whatever_their_dtypes(device: str) -> None:
    transfer = Counted(torch.device(device))
    extras = {
        "flag": torch.tensor([True, False, True], device=device),
        "value": torch.tensor([0.5, 1.5, -2.0], device=device),
        "state": torch.ones((3, 2, 2), device=device).transpose(0, 2)[:, :, 1:],
        "name": np.array(["a", "b", "c"]),
    }
    actions, found = transfer.fetch(torch.tensor([3, 1, 2], device=device), extras)
    assert transfer.copies == [f"{3 * 8 + 3 * 4 + 8 * 4 + 3} bytes back"] and list(found) == list(extras)
    np.testing.assert_array_equal(actions, np.array([3, 1, 2]), strict=True)
    np.testing.assert_array_equal(found["flag"], np.array([True, False, True]), strict=True)
    np.testing.assert_array_equal(found["value"], np.array([0.5, 1.5, -2.0], np.float32), strict=True)
    assert found["state"].shape == (2, 2, 2) and found["name"] is extras["name"]


BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
DISCRETE = spaces.Discrete(3)


def make(kind: str) -> Agent:
    rng, spec = np.random.default_rng(1), ObsSpec.from_obs(np.zeros(4, np.float32))
    made: dict[str, Any] = {
        "q": lambda: QAgent(QFunction(hiddens=[8], action_space=3, seed=0), 0.3, rng=rng, obs_spec=spec),
        "noisy": lambda: NoisyQAgent(NoisyQFunction(hiddens=[8], action_space=3, seed=0), rng=rng, obs_spec=spec),
        "policy": lambda: PolicyAgent(ActorCritic(hiddens=[8], action_space=DISCRETE, seed=0), rng=rng, obs_spec=spec),
        "recurrent": lambda: PolicyAgent(
            ActorCritic(hiddens=[8], action_space=BOX, use_lstm=True, seed=0),
            rng=rng, noise_correlation=0.5, obs_spec=spec,
        ),
        "sampling": lambda: SamplingAgent(
            SoftActorCritic(hiddens=[8], action_space=BOX, seed=0), action_space=BOX, rng=rng, obs_spec=spec
        ),
        "deterministic": lambda: DeterministicAgent(
            DeterministicActorCritic(hiddens=[8], action_space=BOX, seed=0),
            action_space=BOX, noise="parameter", rng=rng, obs_spec=spec,
        ),
    }  # fmt: skip
    agent: Agent = made[kind]()
    return agent


KINDS = ("q", "noisy", "policy", "recurrent", "sampling", "deterministic")


def turns(agent: Agent, *, mode: str = "training") -> list[Any]:
    agent.set_mode(mode)
    rng = np.random.default_rng(0)
    found = []
    for turn in range(3):
        obs = rng.normal(size=(5, 4)).astype(np.float32)
        found.append(agent.act_batch(obs, np.arange(5) > 0, np.arange(5), np.full(5, turn == 0)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_agents_act_the_same_by_way_of_a_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no GPU here: a model on the CPU that denies it takes the same path."""
    agent, counted = make(kind), Counted()
    agent._transfer, agent.model.is_on_cpu = counted, False
    for direct, moved in zip(turns(make(kind)), turns(agent), strict=True):
        np.testing.assert_array_equal(moved.actions, direct.actions, strict=True)
        assert moved.extras.keys() == direct.extras.keys()
        for name, column in direct.extras.items():
            np.testing.assert_array_equal(moved.extras[name], column, strict=True)
    assert sum("there" in copy for copy in counted.copies) == 3
    assert sum("back" in copy for copy in counted.copies) <= 3


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_actions_on_a_device_are_those_on_the_cpu(kind: str, device: str) -> None:
    agent = make(kind)
    agent.model.to(device)
    assert agent.model.device.type == torch.device(device).type
    for here, there in zip(turns(make(kind), mode="eval"), turns(agent, mode="eval"), strict=True):
        np.testing.assert_allclose(there.actions, here.actions, rtol=1e-3, atol=1e-5)
        assert all(isinstance(column, np.ndarray) for column in there.extras.values())


@pytest.mark.parametrize("device", HERE)
def test_new_parameters_go_to_the_models_device(device: str) -> None:
    model, fresh = QFunction(hiddens=[8], action_space=3, seed=0), QFunction(hiddens=[8], action_space=3, seed=1)
    for each in (model, fresh):
        each.materialize(ObsSpec.from_obs(np.zeros(4, np.float32)))
    model.to(device)
    model.load_tensors(fresh.tensors(), 7)
    assert model.version == 7 and model.device.type == torch.device(device).type
    for name, tensor in model.tensors().items():
        assert tensor.device == model.device
        assert torch.equal(tensor.cpu(), fresh.tensors()[name])


def test_values_are_on_the_device_before_the_lock_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Module()
    model.weight = torch.nn.Parameter(torch.zeros(2))
    model.is_on_cpu = False
    free: list[bool] = []

    class Given:
        """A tensor that notes whether another thread could take the model's lock while it moves."""

        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def to(self, device: torch.device) -> torch.Tensor:
            free.append(not model.lock._is_owned())  # type: ignore[attr-defined]
            return self.tensor.to(device)

    model.load_tensors({"weight": Given(torch.ones(2))})  # type: ignore[dict-item]
    assert free == [True]
    assert model.weight.tolist() == [1.0, 1.0]


def test_an_action_without_extras_comes_back_too() -> None:
    class Plain(Agent):
        def _act(self, obs: Any, explore: Any) -> Any:  # type: ignore[override]
            return Acted(obs.argmax(1), {})

    agent, counted = Plain(Module()), Counted()
    agent._transfer, agent.model.is_on_cpu = counted, False
    assert agent.act(np.array([0.0, 2.0, 1.0])) == 1
    assert counted.copies == ["32 bytes there", "8 bytes back"]


@pytest.mark.parametrize("device", HERE)
def test_the_agents_of_a_run_are_built_on_their_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def find(config: Any, key: str, name: str) -> torch.device:
        asked.append((key, name))
        return torch.device(device)

    monkeypatch.setattr(acting, "find_device", find)
    config = load_config("cartpole-ppo", ["agent.device=cuda:1", "device=cpu"])
    spaces_of_run = build_spaces(config)
    model = acting.build_acting_model(config, spaces_of_run)
    assert asked == [("agent.device", "cuda:1")] and str(model.device) == device
    agent = acting.build_agent(config, model, spaces_of_run, index=0, rng=np.random.default_rng(0))
    chosen = agent.act_batch(np.zeros((3, 4), np.float32), np.ones(3, bool), np.arange(3), np.ones(3, bool))
    assert chosen.actions.shape == chosen.extras["log_probability"].shape == (3,)
    assert acting.build_model(config, spaces_of_run).device.type == "cpu"
