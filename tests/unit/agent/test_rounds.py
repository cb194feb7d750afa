"""Rounds: each trajectory is of one version, and what is waited for is what the learner says that it learned from."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surreal.agent import Rounds
from surreal.base.errors import ContractError
from surreal.base.pytorch import Module
from surreal.config import load_config
from surreal.config.preset_files import preset_path
from surreal.envs.pools.local_pool import LocalEnvPool
from surreal.run.build.acting import build_rounds
from tests.unit.agent.test_loop import EMPTY, FIRST, LAST, MID, make_batch, make_loop

ROUND = ("me", 1)


class Parameters:
    """A learner that has learned from all chunks up to `through`."""

    def __init__(self, through: int = 0) -> None:
        self.through = through
        self.events: list[str] = []

    def hold(self) -> None:
        self.events.append("hold")

    def release(self) -> None:
        self.events.append("release")

    def has_learned(self, sender: str, sequence: int) -> bool:
        assert sender == "me"
        return self.through >= sequence

    def has_updated(self) -> bool:
        return self.through > 0


class Learner(Parameters):
    """Learns from each round while the agent waits, and publishes a version."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.model = model

    def release(self) -> None:
        self.through += 1
        self.model.version += 1


class Env(gymnasium.Env[Any, Any]):
    """Ends every three steps, and raises in one of them."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, broken_step: int = -1) -> None:
        self.steps, self.left = 0, broken_step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.left -= 1
        if not self.left:
            raise ValueError("broken")
        return np.zeros(1, np.float32), 1.0, self.steps == 3, False, {}


def rounds_of(steps: int, trajectories: int, **options: Any) -> Rounds:
    return Rounds(steps, trajectories, **{"timeout_s": 0.01, **options})


def test_a_round_is_sent_with_all_its_outcomes_before_the_next_version_acts() -> None:
    batches = [make_batch([FIRST, FIRST], [0, 1]), *[make_batch([MID, MID], [0, 1]) for _ in range(5)]]
    loop, pool, agent, sender = make_loop(*batches, rounds=(rounds := rounds_of(2, 2)))
    rounds.parameters = Learner(agent.model)
    for _ in range(8):
        loop.step()
    assert [event for event in pool.events if event[0] != "send" and event != "recv"] == [
        *["record", "record", "outcomes", "flush all"],
        *[("actions", [0, 1], 1), "record", "outcomes", "flush all"],
        *[("actions", [0, 1], 2), "record"],
    ]
    assert [action.version for _, action in sender.sent] == [0, 0, 1, 2]
    assert loop.metrics()["agent/round_timeouts_total"] == 0.0
    assert loop.env_steps == 2 * 6


def test_ends_of_episodes_do_not_shorten_a_round() -> None:
    batches = [
        make_batch([FIRST, FIRST], [0, 1]),
        make_batch([LAST, FIRST, MID], [0, 0, 1]),
        make_batch([LAST, LAST, FIRST, FIRST], [0, 1, 0, 1]),
    ]
    loop, pool, agent, sender = make_loop(*batches, rounds=(rounds := rounds_of(2, 2)))
    rounds.parameters = Learner(agent.model)
    for _ in range(4):
        loop.step()
    assert [action.version for _, action in sender.sent] == [0, 0]
    assert pool.events[-2:] == [("send", [0.0, 10.0], [0, 1]), ("actions", [0, 1], 1)]


def test_environments_that_are_ahead_rest_until_all_have_their_steps() -> None:
    """Rows of worker processes come as they are ready: nobody begins the next round before all have sent this one."""
    batches = [
        make_batch([FIRST, FIRST], [0, 1]),
        make_batch([MID], [0]),
        make_batch([MID], [0]),  # environment 0 has its steps
        make_batch([MID], [1]),
        make_batch([MID], [1]),
        make_batch([MID, MID], [0, 1]),
    ]
    loop, pool, agent, sender = make_loop(*batches, rounds=(rounds := rounds_of(2, 2)))
    rounds.parameters = Learner(agent.model)
    for _ in range(7):
        loop.step()
    sent = [event for event in pool.events if event[0] == "send"]
    assert [env_ids for _, _, env_ids in sent] == [[0, 1], [0], [1], [0], [1], [0, 1]]
    assert [event for event in pool.events if event[0] == "actions"] == [("actions", [0], 1), ("actions", [1], 1)]
    assert pool.events.index("flush all") > pool.events.index(sent[2])
    assert [action.version for _, action in sender.sent] == [0, 0, 0, 1]


def test_an_environment_that_is_lost_while_it_rests_takes_part_again_when_it_is_back() -> None:
    batches = [
        make_batch([FIRST, FIRST], [0, 1]),
        make_batch([MID], [0]),
        EMPTY._replace(closed_ids=np.array([0])),
        make_batch([FIRST], [0]),
        make_batch([MID], [1]),
    ]
    loop, pool, agent, _ = make_loop(*batches, rounds=(rounds := rounds_of(1, 2)))
    rounds.parameters = Learner(agent.model)
    for _ in range(6):
        loop.step()
    assert [event for event in pool.events if event[0] == "actions"] == [("actions", [0], 1), ("actions", [1], 1)]


@pytest.mark.parametrize("broken_step", [5, 8])
def test_environments_that_step_together_do_not_rest_for_one_that_lost_its_episode(broken_step: int) -> None:
    loop, _, agent, sender = make_loop(rounds=(rounds := rounds_of(4, 2)))
    broken_steps = [broken_step, -1]  # the second is that of the environment made in its place
    loop.pool = LocalEnvPool([lambda: Env(broken_steps.pop(0)), Env], on_error="restart")
    rounds.parameters = Learner(agent.model)
    while rounds.done < 3:
        assert loop.step() or rounds.is_over
    # The lost step and those before it in its trajectory were taken again; the next round has begun.
    assert loop.env_steps == 2 * (3 * 4 + 1 + (broken_step - 1) % 4 + 1)
    assert sorted({action.version for _, action in sender.sent}) == [0, 1, 2]


def test_a_vector_environment_shares_a_round() -> None:
    config = load_config(
        preset_path("cartpole-ppo"), overrides=["env.pool=vector", "env.num_envs=2", "learner.batch_size=2"]
    )
    assert not config.has_exact_rounds
    rounds = build_rounds(config, lambda: False)
    assert rounds is not None
    loop, _, agent, _ = make_loop(rounds=rounds)
    loop.pool = LocalEnvPool(SyncVectorEnv([Env, lambda: Env(10**9)], autoreset_mode=AutoresetMode.NEXT_STEP))
    rounds.parameters = Learner(agent.model)
    for _ in range(200):
        loop.step()
    assert rounds.done >= 3


def test_sessions_share_a_round_whoever_plays_it() -> None:
    rounds = rounds_of(2, 3, is_shared=True)
    for env_id in (0, 9, 9, 0, 4):
        rounds.count(make_batch([MID], [env_id]))
        assert not rounds.is_over
        assert not rounds.resting(np.array([env_id])).any()
    rounds.count(make_batch([MID], [4], record=[False]))
    assert not rounds.is_over
    rounds.count(make_batch([MID], [4]))
    assert rounds.is_over
    assert rounds.resting(np.array([4])).all()


def test_a_shared_round_waits_for_the_next_update_and_keeps_what_it_has_too_many() -> None:
    """The batch can be complete, and learned from, before the last chunk of the round arrives."""
    rounds = rounds_of(1, 2, is_shared=True, parameters=(parameters := Parameters()))
    rounds.count(make_batch([MID, MID, MID], [0, 1, 2]))
    assert rounds.is_over
    assert not rounds.wait(Module(), ("me", 9))
    parameters.through = 1
    assert not rounds.is_over
    rounds.count(make_batch([MID], [0]))
    assert rounds.is_over
    assert rounds.wait(Module(), ("me", 9))
    assert not rounds.is_over


def test_parameters_are_held_while_the_agent_acts() -> None:
    rounds = rounds_of(1, 1, parameters=(parameters := Parameters(through=1)))
    assert rounds.wait(Module(), ROUND)
    assert parameters.events == ["release", "hold"]


def test_newer_versions_that_learned_nothing_do_not_end_a_wait() -> None:
    """As those of a learner that is restarted: it publishes what it has under a newer version."""

    def publish_again() -> bool:
        model.version += 1
        return False

    model, parameters = Module(), Parameters()
    rounds = rounds_of(1, 1, parameters=parameters, should_stop=publish_again)
    assert not rounds.wait(model, ROUND)
    assert model.version > 0
    assert rounds.timeouts == 1


def test_a_round_that_was_given_up_is_waited_for_with_the_next_one() -> None:
    rounds = rounds_of(1, 1, parameters=(parameters := Parameters()))
    assert not rounds.wait(Module(), ROUND)
    parameters.through = 1
    assert not rounds.wait(Module(), ("me", 2)), "it learned from the first alone"
    parameters.through = 3
    assert rounds.wait(Module(), ("me", 3))
    assert (rounds.done, rounds.timeouts) == (3, 2)


def test_a_waiting_agent_hears_that_it_is_to_stop_and_that_parameters_will_never_come() -> None:
    model = Module()
    for stops in (True, False):
        rounds = rounds_of(1, 1, parameters=Parameters(), should_stop=lambda stops=stops: stops, timeout_s=60.0)
        assert not rounds.wait(model, ROUND)
        assert rounds.timeouts == 0
        model.fail(ContractError("another model"))


@pytest.mark.parametrize(("steps", "trajectories"), [(0, 1), (1, 0)])
def test_a_round_without_steps_is_refused(steps: int, trajectories: int) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        Rounds(steps, trajectories)
