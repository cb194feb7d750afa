"""Updates as graphs: the same tensors as without, for each learner; and what happens where there can be none."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch._subclasses import FakeTensorMode

from surreal.base.errors import ConfigError
from surreal.base.specs import ObsSpec
from surreal.config import load_config
from surreal.learner import (
    A2CLearner,
    APPOLearner,
    BCLearner,
    CQLLearner,
    DDPGLearner,
    DQNLearner,
    GradientLearner,
    IPGLearner,
    IQLLearner,
    PolicyGradientLearner,
    PPOLearner,
    PQNLearner,
    QuantileDQNLearner,
    R2D2Learner,
    SACLearner,
    TD3BCLearner,
    VTraceLearner,
    one_graph,
)
from surreal.learner.stepping import graph_run, graphs
from surreal.learner.stepping.graph_cache import Entry, GraphCache
from surreal.learner.stepping.recording import Interface
from surreal.model import (
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    ImplicitActorCritic,
    NoisyQFunction,
    QFunction,
    QuantileQFunction,
    SoftActorCritic,
)
from tests.unit.learner.on_policy.conftest import make_model, mix, play

__all__ = ["make_model", "mix", "play"]

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
GOALS = ObsSpec.from_obs({"achieved_goal": np.zeros(2), "desired_goal": np.zeros(2)})
BOX = spaces.Box(-1.0, 1.0, (2,))
OPTIONS: dict[str, Any] = {"obs_spec": OBS, "seed": 0}
BATCH_NORM = {"type": "batch", "warm_up": 3}
TD3 = {"policy_delay": 2, "smoothing_sigma": 0.2}
QUANTILES = {"type": "quantile", "quantiles": 5, "dropped": 1}
OFF_POLICY: dict[str, Callable[..., GradientLearner]] = {
    "dqn": lambda **options: DQNLearner(QFunction([8], action_space=2, **OPTIONS), **options),
    "dqn-soft": lambda **options: DQNLearner(
        QFunction([8], action_space=2, **OPTIONS), target_update_tau=0.1, optimizer="rmsprop", **options
    ),
    "dqn-noisy": lambda **options: DQNLearner(NoisyQFunction([8], action_space=2, **OPTIONS), **options),
    "quantile": lambda **options: QuantileDQNLearner(
        QuantileQFunction([8], action_space=2, num_quantiles=5, **OPTIONS), target_update_period=3, **options
    ),
    "ddpg": lambda **options: DDPGLearner(
        DeterministicActorCritic([8], action_space=BOX, normalize_obs=True, **OPTIONS),
        gradients_norm_clipping=0.1,
        **options,
    ),
    "td3": lambda **options: DDPGLearner(
        DeterministicActorCritic([8], action_space=BOX, critics=2, **OPTIONS), **TD3, **options
    ),
    "sac": lambda **options: SACLearner(SoftActorCritic([8], action_space=BOX, **OPTIONS), **options),
    "sac-taught": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, **OPTIONS), intervention_weight=4.0, intervention_cloning=1.0, **options
    ),
    "sac-gsde": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, state_dependent_sigma=0.1, **OPTIONS), **options
    ),
    "td3-batch-norm": lambda **options: DDPGLearner(
        DeterministicActorCritic([8], action_space=BOX, norm=BATCH_NORM, **OPTIONS), **TD3, **options
    ),
    "crossq": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, norm=BATCH_NORM, **OPTIONS),
        target_update_tau=None,
        joint_batch=True,
        policy_delay=3,
        beta1=0.5,
        **options,
    ),
    "sac-simba": lambda **options: SACLearner(
        SoftActorCritic([8, 8], action_space=BOX, blocks="simba", normalize_obs=True, **OPTIONS), **options
    ),
    "sac-flashsac": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, blocks="flashsac", norm=BATCH_NORM, **OPTIONS),
        joint_batch=True,
        policy_delay=2,
        use_cosine_schedule=True,
        max_global_step=1000,
        **options,
    ),
    "tqc": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, critics=3, critic_output=QUANTILES, **OPTIONS), **options
    ),
    "sac-categorical": lambda **options: SACLearner(
        SoftActorCritic([8], action_space=BOX, critic_output={"type": "categorical", "bins": 11}, **OPTIONS), **options
    ),
    "td3-quantile": lambda **options: DDPGLearner(
        DeterministicActorCritic([8], action_space=BOX, critic_output=QUANTILES, **OPTIONS), **TD3, **options
    ),
    "sac-discrete": lambda **options: SACLearner(
        DiscreteSoftActorCritic([8], action_space=spaces.Discrete(2), **OPTIONS), **options
    ),
    "sac-dict": lambda **options: SACLearner(SoftActorCritic([8], obs_spec=GOALS, action_space=BOX, seed=0), **options),
    "bc": lambda **options: BCLearner(
        DeterministicActorCritic([8], action_space=BOX, normalize_obs=True, **OPTIONS), **options
    ),
    "td3bc": lambda **options: TD3BCLearner(DeterministicActorCritic([8], action_space=BOX, **OPTIONS), **options),
    "iql": lambda **options: IQLLearner(ImplicitActorCritic([8], action_space=BOX, **OPTIONS), **options),
    "cql": lambda **options: CQLLearner(
        SoftActorCritic([8], action_space=BOX, **OPTIONS), conservative_actions=2, **options
    ),
    "r2d2": lambda **options: R2D2Learner(
        QFunction([6], action_space=2, use_lstm=True, lstm_size=5, **OPTIONS), **options
    ),
    "pqn": lambda **options: PQNLearner(
        QFunction([8], action_space=2, norm="layer", **OPTIONS), mini_batch=5, **options
    ),
    "pqn-lstm": lambda **options: PQNLearner(
        QFunction([6], action_space=2, use_lstm=True, lstm_size=5, **OPTIONS), **options
    ),
}
ON_POLICY: dict[str, tuple[type[GradientLearner], dict[str, Any], dict[str, Any]]] = {
    "pg": (PolicyGradientLearner, {"optimizer": "nadam", "weight_decay": 0.1}, {}),
    "a2c": (A2CLearner, {"optimizer": "rmsprop_tf"}, {"normalize_obs": True}),
    "a2c-curious": (A2CLearner, {"icm": {}}, {}),
    "ppo": (PPOLearner, {"mini_batch": 16, "policy_iterations": 2, "entropy_beta": 0.01}, {"normalize_obs": True}),
    "ppo-box": (
        PPOLearner,
        {"mini_batch": None, "policy_iterations": 3, "kl_target": 0.01, "vf_clipped_loss": True},
        {"space": BOX},
    ),
    "ppo-lstm": (PPOLearner, {"policy_iterations": 2}, {"use_lstm": True, "lstm_size": 4}),
    "ppo-curious": (PPOLearner, {"icm": {}, "mini_batch": 18, "policy_iterations": 2}, {"normalize_rewards": True}),
    "appo": (APPOLearner, {"optimizer": "radam", "mini_batch": 18, "policy_iterations": 2}, {}),
    "vtrace": (VTraceLearner, {"use_linear_schedule": True, "max_global_step": 1000}, {"value_hiddens": [8]}),
    "ipg": (IPGLearner, {"mini_batch": 18, "critic_hidden_sizes": [8]}, {}),
}
#: Where a compiler is used in each run of the tests; the other learners differ in what is recorded.
COMPILED_ALWAYS = ("dqn-soft",)
#: `make graphs` compiles all, and takes updates from more states.
IS_WHOLE = "SURREAL_TEST_GRAPHS" in os.environ
STATES = 100 if IS_WHOLE else 8
#: Those with trajectories; others have more or fewer steps, and so graphs of their own.
BATCHES = 4 if IS_WHOLE else 1


class Interpreted:
    """In place of a process that compiles: the graph as it was recorded."""

    is_running = False

    def __init__(self, _name: str, graph: Any, interface: Interface, _inputs: Any, *, niceness: int) -> None:
        self._graph, self._interface = graph, interface

    def result(self) -> Entry:
        entry = Entry(self._interface, Path(), 1.0)
        object.__setattr__(entry, "load", lambda _: self._run)
        return entry

    def close(self) -> None:
        pass

    def _run(self, inputs: list[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return self._graph(*inputs)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "surreal" / "updates"


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphCache, "begin", Interpreted)


def as_goals(obs: Tensor) -> dict[str, Tensor]:
    return {"achieved_goal": obs[:, :2].double(), "desired_goal": obs[:, 2:].double()}


@pytest.fixture
def make(make_batch: Any, make_trajectories: Any, make_model: Any, play: Any, mix: Any) -> Any:
    """Make a learner, and the batches of its updates."""

    def made(name: str, **options: Any) -> tuple[GradientLearner, Callable[[int], Any]]:
        if name in ON_POLICY:
            cls, settings, of_model = ON_POLICY[name]
            model = make_model((8,), **of_model)
            source = mix if name == "ipg" else play
            return cls(model, **settings, **options), lambda i: source(model, rows=6, columns=6, seed=i % BATCHES)
        learner = OFF_POLICY[name](**options)

        def batch(seed: int) -> Any:
            if name in ("r2d2", "pqn", "pqn-lstm"):
                found = make_trajectories(seed, rows=5, columns=3)
                return found._replace(initial_state={"state": torch.zeros(3, 2, 5)}, burn_in=int(name == "r2d2"))
            found = make_batch(seed)
            if name == "sac-dict":
                found = found._replace(obs=as_goals(found.obs), next_obs=as_goals(found.next_obs))
            if name == "sac-taught":
                found = found._replace(extras={"is_intervention": torch.arange(16) % 3 == seed % 3})
            is_discrete = name.startswith(("dqn", "quantile")) or name == "sac-discrete"
            generator = torch.Generator().manual_seed(seed)
            return found if is_discrete else found._replace(action=torch.rand(16, 2, generator=generator) * 2.0 - 1.0)

        return learner, batch

    return made


def check_updates(make: Any, name: str, count: int) -> GradientLearner:
    """Do each update twice from the same state: without a graph, and with it."""
    plain, batch = make(name, compile=False)
    learner, _ = make(name, compile=True)
    for i in range(count):
        given = batch(i)
        if i:
            learner.load_state_dict(copy.deepcopy(plain.state_dict()))
        plain.optimize(i, given)
        learner.optimize(i, given)
        check_close(plain.state_dict()["tensors"], learner.state_dict()["tensors"])
        for metric, value in plain.reading.items():
            assert learner.reading[metric] == pytest.approx(value, rel=1e-3, abs=1e-5), metric
    assert learner.graphs is not None and learner.graphs.running > 0
    return learner


def check_close(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], tolerance: float = 1e-4) -> None:
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        difference = (tensor.double() - found[key].double()).abs()
        if tensor.numel():
            assert difference.max() <= tolerance * tensor.double().abs().max() + 1e-7, key


@pytest.mark.parametrize("name", [*OFF_POLICY, *ON_POLICY])
def test_recorded_updates_are_those_of_the_method(name: str, make: Any, interpreted: None) -> None:
    check_updates(make, name, STATES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OFF_POLICY, *ON_POLICY])
def test_compiled_updates_are_those_of_the_method(name: str, make: Any) -> None:
    if name not in COMPILED_ALWAYS and not IS_WHOLE:
        pytest.skip("compiles for half a minute: make graphs")
    learner = check_updates(make, name, STATES)
    assert learner.graphs is not None and learner.graphs.cost_s > 0.0


def test_an_entry_of_the_cache_is_used_without_recording_again(
    make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [digest_of(make, "dqn", monkeypatch) for _ in range(2)]
    assert names[0] == names[1]
    assert digest_of(make, "dqn-soft", monkeypatch) != names[0]
    assert digest_of(make, "dqn", monkeypatch, huber_delta=2.0) != names[0]
    assert digest_of(make, "dqn", monkeypatch, gradients_norm_clipping=1.0) != names[0]
    assert digest_of(make, "dqn", monkeypatch, initial_learning_rate=0.5) == names[0]


def digest_of(make: Any, name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    found: list[str] = []

    def get(_: GraphCache, digest: str) -> Any:
        found.append(digest)
        raise RuntimeError("its name is enough")

    monkeypatch.setattr(GraphCache, "get", get)
    learner, batch = make(name, compile=True, **options)
    learner.optimize(0, batch(0))
    learner.optimize(1, batch(1))
    return found[-1]


def alongside(make: Any, monkeypatch: pytest.MonkeyPatch, left_s: float, graph_s: float) -> GradientLearner:
    """Let a learner compile alongside, with calls of 0.4 ms by the method, which is 0.4 of all time."""
    learner, batch = make("dqn")
    clock = Clock()
    monkeypatch.setattr(graphs.time, "perf_counter", clock)
    learner.follow_run(keeps_waiting=lambda: True, seconds_left=lambda: left_s)
    estimate, run = learner.estimate, Interpreted._run

    def estimating(given: Any) -> Any:
        clock.now_s += 0.4e-3
        return estimate(given)

    def running(self: Interpreted, inputs: list[Tensor]) -> list[Tensor]:
        clock.now_s += graph_s
        return run(self, inputs)

    monkeypatch.setattr(learner, "estimate", estimating)
    monkeypatch.setattr(Interpreted, "_run", running)
    for i in range(300):
        clock.now_s += 0.6e-3
        learner.optimize(i, batch(i))
    return learner


class Clock:
    """A clock that stands still."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_compiling_alongside_begins_where_it_saves_more_than_it_costs(
    make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = alongside(make, monkeypatch, left_s=1000.0, graph_s=0.1e-3).metrics()
    assert found["learner/graphs"] == 1.0
    assert 0.0 < found["learner/compile_cpu_s_total"] <= found["learner/compile_saving_s_total"] <= 0.8 * 400.0
    found = alongside(make, monkeypatch, left_s=20.0, graph_s=0.1e-3).metrics()
    assert found["learner/graphs"] == found["learner/compile_cpu_s_total"] == 0.0


def test_a_graph_that_is_not_faster_is_not_used(make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = alongside(make, monkeypatch, left_s=1000.0, graph_s=0.39e-3).metrics()
    assert found["learner/graphs"] == 0.0 and found["learner/compile_cpu_s_total"] > 0.0


def test_where_the_end_is_unknown_nothing_is_compiled(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphCache, "begin", lambda *_, **__: pytest.fail("it compiles"))
    learner, batch = make("dqn")
    for i in range(300):
        learner.optimize(i, batch(i))


def test_a_failing_compiler_is_told_once_and_updates_continue(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(GraphCache, "begin", failing)
    plain, batch = make("sac", compile=False)
    learner, _ = make("sac", compile=True)
    with caplog.at_level(logging.WARNING):
        for i in range(3):
            for each in (plain, learner):
                each.optimize(i, batch(i))
    assert caplog.messages == ["SACLearner.update_from runs without a graph: no compiler here"]
    for key, tensor in plain.state_dict()["tensors"].items():
        assert torch.equal(tensor, learner.state_dict()["tensors"][key]), key


def test_a_graph_that_computes_something_else_is_refused_and_leaves_no_trace(
    make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Interpreted._run

    def wrong(self: Interpreted, inputs: list[Tensor]) -> list[Tensor]:
        found = run(self, inputs)
        found[0] += 1.0
        return found

    monkeypatch.setattr(Interpreted, "_run", wrong)
    plain, batch = make("td3", compile=False)
    learner, _ = make("td3", compile=True)
    for i in range(4):
        for each in (plain, learner):
            each.optimize(i, batch(i))
    assert "its graph gives another td_error" in caplog.text
    assert learner.graphs is not None and not learner.graphs.running
    for key, tensor in plain.state_dict()["tensors"].items():
        assert torch.equal(tensor, learner.state_dict()["tensors"][key]), key


class Peeking(DQNLearner):
    """A learner whose update depends on a number of a tensor."""

    def estimate(self, batch: Any) -> tuple[Tensor, Tensor]:
        q, target = super().estimate(batch)
        return (q, target) if float(q.detach().sum()) > 1e9 else (q, target * 0.5)


class Remembering(DQNLearner):
    """A learner whose update reads a tensor that it does not keep."""

    def estimate(self, batch: Any) -> tuple[Tensor, Tensor]:
        q, target = super().estimate(batch)
        self.mean = target.mean() if not hasattr(self, "mean") else self.mean
        return q, target - self.mean


class Dicing(DQNLearner):
    """A learner whose update draws without a generator."""

    def estimate(self, batch: Any) -> tuple[Tensor, Tensor]:
        q, target = super().estimate(batch)
        return q, target + torch.rand_like(target)


@pytest.mark.parametrize("cls", [Peeking, Remembering, Dicing])
def test_what_a_graph_cannot_do_runs_without_one(
    cls: type[DQNLearner], make_batch: Any, interpreted: None, caplog: pytest.LogCaptureFixture
) -> None:
    learner = cls(QFunction([8], action_space=2, **OPTIONS), compile=True)
    for i in range(3):
        learner.optimize(i, make_batch(i))
    assert f"{cls.__name__}.update_from runs without a graph" in caplog.text
    assert learner.updates == 3 and learner.graphs is not None and not learner.graphs.running


def test_gradients_that_are_not_finite_change_nothing_and_are_counted(make: Any, interpreted: None) -> None:
    learner, batch = make("dqn", compile=True)
    learner.optimize(0, batch(0))
    learner.optimize(1, batch(1))
    before = copy.deepcopy(learner.state_dict()["tensors"])
    broken = batch(2)
    broken.reward[0] = torch.nan
    learner.optimize(2, broken)
    assert learner.skipped_updates == 1
    for key, tensor in before.items():
        assert torch.equal(tensor, learner.state_dict()["tensors"][key]), key
    learner.optimize(3, batch(3))
    assert not torch.equal(before["model/q.output.bias"], learner.state_dict()["tensors"]["model/q.output.bias"])


def test_learning_rates_follow_their_schedule_in_a_graph(make_batch: Any, interpreted: None) -> None:
    options: dict[str, Any] = {"use_linear_schedule": True, "max_global_step": 10, "schedule_step": "update"}
    plain, learner = (
        DQNLearner(QFunction([8], action_space=2, **OPTIONS), compile=compiles, initial_learning_rate=0.1, **options)
        for compiles in (False, True)
    )
    for i in range(10):
        plain.optimize(i, make_batch(i))
        learner.optimize(i, make_batch(i))
    assert learner.graphs is not None and learner.graphs.running
    for key, tensor in plain.state_dict()["tensors"].items():
        torch.testing.assert_close(learner.state_dict()["tensors"][key], tensor, rtol=1e-2, atol=1e-4)


def test_other_shapes_run_without_a_graph_when_there_are_many(make_batch: Any, interpreted: None) -> None:
    learner = DQNLearner(QFunction([8], action_space=2, **OPTIONS), compile=True)
    for i in range(20):
        learner.optimize(i, make_batch(i, rows=8 + i))
    assert learner.graphs is not None and 0 < learner.graphs.running <= graphs._MAX_GRAPHS


def test_a_resumed_learner_goes_on_bit_for_bit(make: Any, interpreted: None) -> None:
    for name in ("sac", "ppo"):
        whole, batch = make(name, compile=True)
        batches = [batch(i) for i in range(4)]
        for i in range(2):
            whole.optimize(i, batches[i])
        second, _ = make(name, compile=True)
        second.load_state_dict(copy.deepcopy(whole.state_dict()))
        for i in range(2, 4):
            whole.optimize(i, batches[i])
            second.optimize(i, batches[i])
        for key, tensor in whole.state_dict()["tensors"].items():
            assert torch.equal(tensor, second.state_dict()["tensors"][key]), key


def test_a_cache_that_others_can_write_is_not_used(cache: Path, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    learner, batch = make("dqn", compile=True)
    for i in range(3):
        learner.optimize(i, batch(i))
    assert "can be written by other users" in caplog.text


def test_what_was_not_used_for_long_leaves_the_cache(make: Any) -> None:
    cache = GraphCache()
    old, used, new = ([cache.folder / f"{name}.{kind}" for kind in ("json", "pt2")] for name in ("old", "used", "new"))
    interface = json.dumps({"interface": Interface([], [], [], [], [], [], []).as_json(), "cost_s": 1.0})
    for path in (*old, *used, *new):
        path.write_text(interface)
    left = cache.folder / "left"
    left.mkdir()
    (left / "part").touch()
    for path in (*old, *used, left):
        os.utime(path, (0, 0))
    assert cache.get("used") is not None
    cache._sweep()
    assert set(cache.folder.iterdir()) == {*used, *new}


@pytest.mark.slow
def test_a_compiler_that_fails_gives_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    monkeypatch.setenv("CXX", "no-such-compiler")
    compiling = GraphCache().begin("name", graph, Interface([], [], [], [], [], [], []), [torch.zeros(3)])
    with pytest.raises(RuntimeError, match="compiler"):
        compiling.result()
    assert [path.suffix for path in GraphCache().folder.iterdir()] == [".lock"]


def test_a_compiler_whose_parent_is_gone_before_it_looks_ends(cache: Path) -> None:
    cache.mkdir(parents=True)
    job = {"name": "name", "folder": str(cache), "interface": {}, "niceness": 0}
    job |= {"graph": torch.fx.symbolic_trace(torch.nn.Identity()), "inputs": [((3,), (1,), torch.float32, "cpu")]}
    (cache / "job").write_bytes(pickle.dumps(job))
    command = [sys.executable, "-m", "surreal.learner.stepping.graph_cache", str(cache / "job"), str(os.getpid() + 1)]
    assert subprocess.run(command, process_group=0).returncode == -signal.SIGKILL
    assert not (cache / "name.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"interface": {}, "cost_s": 1}', '{"cost_s": "x"}'])
def test_a_broken_entry_of_the_cache_is_none(text: str) -> None:
    cache = GraphCache()
    (cache.folder / "name.json").write_text(text)
    assert cache.get("name") is None


def test_a_library_that_cannot_be_loaded_leaves_the_method(
    make: Any, interpreted: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, batch = make("dqn", compile=True)
    learner.optimize(0, batch(0))
    learner.optimize(1, batch(1))
    assert learner.graphs is not None
    (variant,) = learner.graphs._variants.values()
    assert variant.run is not None
    path = GraphCache().folder / "broken.pt2"
    path.write_bytes(b"nothing")
    interface = Interface([], [], [], [], [], [], [])
    monkeypatch.setattr(GraphCache, "get", lambda *_: Entry(interface, path, 1.0))
    other, _ = make("dqn", compile=True)
    for i in range(3):
        other.optimize(i, batch(i))
    assert other.updates == 3 and other.graphs is not None and not other.graphs.running


def test_recording_shares_one_mode_for_the_shapes_of_its_operations(
    make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode for each operation would keep a stack trace each, and take twice the time."""
    made: list[FakeTensorMode] = []
    begin = FakeTensorMode.__init__
    monkeypatch.setattr(FakeTensorMode, "__init__", lambda self, **rest: (made.append(self), begin(self, **rest))[1])
    check_updates(make, "dqn", 2)
    assert len(made) == 1


def test_histograms_see_all_gradients(make: Any, interpreted: None) -> None:
    """Also those of a group that does not move in the updates whose histograms are due."""
    learner, batch = make("td3", compile=True, histogram_interval=10)
    for i in range(20):
        learner.optimize(i, batch(i))
    assert learner.graphs is not None and learner.graphs.running == 2
    groups = {name.partition(".")[0] for name in learner.histograms.take() if name.startswith("gradients/")}
    assert groups == {"gradients/actor", "gradients/critic"}


class Calling(DQNLearner):
    """A learner whose marked method calls the one that it overrides."""

    @one_graph
    def update_from(self, batch: Any, is_shown: bool) -> dict[str, Tensor]:
        return dict(super().update_from(batch, False))


def test_a_marked_method_may_call_the_one_that_it_overrides(make_batch: Any, interpreted: None) -> None:
    plain = DQNLearner(QFunction([8], action_space=2, **OPTIONS), compile=False)
    learner = Calling(QFunction([8], action_space=2, **OPTIONS), compile=True)
    for i in range(4):
        plain.optimize(i, make_batch(i))
        learner.optimize(i, make_batch(i))
    assert learner.graphs is not None and learner.graphs.running == 1
    check_close(plain.state_dict()["tensors"], learner.state_dict()["tensors"], tolerance=1e-3)


def test_a_setting_that_changes_during_the_run_ends_the_graphs(
    make: Any, interpreted: None, caplog: pytest.LogCaptureFixture
) -> None:
    plain, batch = make("a2c", compile=False)
    learner, _ = make("a2c", compile=True)
    batches = [batch(i) for i in range(4)]
    for i in range(4):
        for each in (plain, learner):
            each.entropy_beta = 0.01 if i < 2 else 0.5
            each.optimize(i, batches[i])
    assert learner.graphs is None and caplog.messages[-1] == "entropy_beta was changed: updates continue without graphs"
    check_close(plain.state_dict()["tensors"], learner.state_dict()["tensors"], tolerance=1e-3)


def test_nothing_is_compiled_alongside_for_classes_of_users(make_batch: Any) -> None:
    for cls, compiles in ((DQNLearner, True), (Peeking, False)):
        learner = cls(QFunction([8], action_space=2, **OPTIONS))
        learner.follow_run(keeps_waiting=lambda: True, seconds_left=lambda: 1e6)
        assert (learner.graphs is not None) == compiles


def test_seed_and_length_of_a_run_do_not_change_a_graph(
    make: Any, interpreted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest_of(make, "ppo", monkeypatch, seed=1, max_global_step=100)
    assert digest_of(make, "ppo", monkeypatch, seed=2, max_global_step=200) == first


def test_the_same_tensor_twice_is_another_graph(make: Any) -> None:
    kinds = []
    for pair in ((tensor := torch.zeros(3), tensor), (tensor, tensor.clone())):
        found = graph_run.CallArguments()
        found.add(pair)
        kinds.append(found.kinds)
    assert kinds[0] != kinds[1]


@pytest.mark.parametrize("value", ["maybe", 2, None])
def test_another_choice_of_compiling_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"learner.compile is .*; it must be auto, true or false"):
        load_config("cartpole-ppo", [f"learner.compile={json.dumps(value)}"])
    with pytest.raises(ValueError, match="compile is"):
        DQNLearner(QFunction([8], action_space=2, **OPTIONS), compile=value)
