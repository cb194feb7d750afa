"""The benchmark of a person in the loop, with an arm that is a point in place of gym-hil's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.hil.__main__ import CONFIG, shares, summary, taught_steps
from benchmarks.hil.cube import PandaCube, decode, encode
from benchmarks.hil.pick import CONFIG as PICK
from benchmarks.hil.pick import Expert as PickExpert
from benchmarks.hil.teacher import Expert, Teacher
from surreal.base.types import IS_INTERVENTION
from surreal.cli.program import main
from surreal.distributed.experience.data_contract import EXTRA_PREFIX
from surreal.replay.archive import ReplayArchive

_ID = "gym_hil/PandaPickCubeBase-v0"
#: Steps of 3 s, and of 1 s.
_PATIENCE, _TURN = 30, 10


class PointArm(gymnasium.Env[Any, Any]):
    """A gripper without a body, which holds the cube if it closed around it; spaces are those of gym-hil."""

    action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        assert options == {"image_obs": False, "reward_type": "sparse", "random_block_position": True}
        state, cube = (spaces.Box(-np.inf, np.inf, (size,), np.float32) for size in (18, 3))
        self.observation_space = spaces.Dict({"agent_pos": state, "environment_state": cube})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.gripper, self.closed = np.array((0.49, 0.0, 0.08)), 0.0
        x, y = np.random.uniform((0.3, -0.15), (0.5, 0.15))  # noqa: NPY002, as gym-hil does
        self.cube = np.array((x, y, 0.02))
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        is_held = self.closed >= 1.0 and np.linalg.norm(self.cube - self.gripper) < 0.03
        self.gripper = self.gripper + action[:3]
        if is_held:
            self.cube = self.cube + action[:3]
        self.closed = float(np.clip(self.closed + action[6], 0.0, 1.0))
        is_lifted = bool(self.cube[2] > 0.12)
        return self._see(), float(is_lifted), is_lifted, False, {"succeed": is_lifted}

    def _see(self) -> dict[str, Any]:
        state = np.concatenate([np.zeros(14), [255.0 * self.closed], self.gripper]).astype(np.float32)
        return {"agent_pos": state, "environment_state": self.cube.astype(np.float32)}


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the point in place of gym-hil's arm."""
    monkeypatch.setitem(sys.modules, "gym_hil", ModuleType("gym_hil"))
    kept = gymnasium.registry.pop(_ID, None)
    gymnasium.register(_ID, entry_point=PointArm, max_episode_steps=100)
    yield
    del gymnasium.registry[_ID]
    if kept is not None:
        gymnasium.registry[_ID] = kept


def seen(distance_m: float, height_m: float = 0.02) -> NDArray[np.float32]:
    """Return what an arm sees whose gripper is at a distance to the right of the cube."""
    state = np.zeros(18, np.float32)
    cube = np.array((0.4, 0.0, height_m), np.float32)
    state[15:18] = cube + np.array((0.0, distance_m, 0.0), np.float32)
    return encode(state, cube)


def acts(teacher: Teacher, distances: Callable[[int], float], steps: int) -> list[bool]:
    """Return for each step of an episode whether the teacher acts."""
    teacher.reset(seen(distances(0)))
    return [teacher(seen(distances(number)), None) is not None for number in range(steps)]


def test_the_teacher_takes_over_after_three_seconds_without_progress_and_lets_go_after_one() -> None:
    found = acts(Teacher(), lambda _: 0.2, 3 * (_PATIENCE + _TURN))
    # The first look after the teacher let go is where progress is counted from.
    again = [False] * (_PATIENCE + 1) + [True] * _TURN
    assert found == [False] * _PATIENCE + [True] * _TURN + again + again[: len(found) - 81]


def test_a_policy_that_comes_nearer_keeps_control() -> None:
    assert not any(acts(Teacher(), lambda number: 0.5 - 0.011 * (number // 25), 400))


def test_movements_of_less_than_a_centimeter_are_not_progress() -> None:
    assert acts(Teacher(), lambda number: 0.2 + 0.004 * (number % 2), _PATIENCE + 1)[-1]


def test_a_cube_that_rises_is_progress() -> None:
    teacher = Teacher()
    teacher.reset(seen(0.03))
    lifts = [teacher(seen(0.03, 0.02 + 0.011 * (number // 25)), None) for number in range(200)]
    assert lifts == [None] * 200


def test_an_episode_begins_with_all_of_the_patience() -> None:
    teacher = Teacher()
    assert not any(acts(teacher, lambda _: 0.2, _PATIENCE))
    assert not any(acts(teacher, lambda _: 0.2, _PATIENCE))


@pytest.mark.usefixtures("arm")
def test_the_expert_lifts_the_cube_from_every_place() -> None:
    env, expert = PandaCube(), Expert()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        is_over = False
        while not is_over:
            obs, reward, terminated, truncated, info = env.step(expert(obs, None))
            is_over = terminated or truncated
        assert (reward, info["success"]) == (1.0, True)


@pytest.mark.usefixtures("arm")
def test_a_seed_gives_the_same_places_and_an_observation_tells_them() -> None:
    env = PandaCube()
    places = [[decode(env.reset(seed=seed)[0]).cube for seed in (5, None, None)] for _ in range(2)]
    np.testing.assert_array_equal(*places)
    assert len({tuple(place) for place in places[0]}) == 3
    np.testing.assert_allclose(places[0][-1], env.unwrapped.cube, atol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("arm")
def test_the_configuration_passes_the_check_with_demonstrations_of_the_expert(tmp_path: Path) -> None:
    demos = tmp_path / "demos"
    words = ["record", str(CONFIG), "-o", str(demos), "--expert", "benchmarks.hil.teacher:Expert", "--episodes", "3"]
    assert main([*words, "--seed", "0"]) == 0
    flags = taught_steps(ReplayArchive(demos))
    assert len(flags) == ReplayArchive(demos).manifest.steps
    assert flags.all()  # an expert chose all actions
    assert main(["run", str(CONFIG), "--check", "--set", f"replay.args.demonstrations={demos}"]) == 0


def test_a_step_that_two_chunks_hold_is_counted_once() -> None:
    # Segments of 3 and 4 steps, of which the last one, and the last two, are the next chunk's; one has a history row.
    segments = np.array([[4, 2, 0, 0, 0], [6, 2, 1, 0, 1]])
    column = np.array([1, 0, 1, 0, 1, 1, 1], bool)
    chunk = SimpleNamespace(segments=segments, columns={EXTRA_PREFIX + IS_INTERVENTION: column})
    archive: Any = SimpleNamespace(chunks=lambda: [chunk, chunk])
    assert taught_steps(archive).tolist() == [True, False, False, True] * 2


def test_the_last_ten_minutes_are_the_last_6000_steps() -> None:
    flags = np.zeros(10_000, bool)
    flags[:4_000] = flags[-60:] = True
    assert shares(flags) == {"teacher_share": 0.406, "teacher_share_last": 0.01}


def test_the_report_of_chaos_is_summarized() -> None:
    disturbances = [{"target": name} for name in ("learner", "agent-1", "agent-0")]
    invariants = [{"name": "a", "holds": True}, {"name": "b", "holds": False}]
    found = summary({"disturbances": disturbances, "invariants": invariants})
    assert found == {"kills": {"learner": 1, "agent": 2}, "invariants": 2, "broken": ["b"]}


@pytest.mark.parametrize(
    ("way", "fingers", "expected"),
    [
        ((0.1, 0.0, -0.03), 0.1, (1.0, 0.0, 0.3, 1.0)),  # aside: 6 cm above it
        ((0.01, 0.0, -0.05), 0.1, (0.1, 0.0, -0.5, 1.0)),  # above: down
        ((0.0, 0.0, 0.005), 0.1, (0.0, 0.0, 0.0, -1.0)),  # around: close
        ((0.0, 0.0, 0.015), 0.05, (0.5, 0.0, 1.0, -1.0)),  # held, even if it slipped: to the goal
        ((0.0, 0.0, 0.015), 0.1, (0.0, 0.0, 0.15, 1.0)),  # not held: nearer
    ],
)
def test_the_expert_of_fetch_follows_from_what_it_sees(
    way: tuple[float, ...], fingers: float, expected: tuple[float, ...]
) -> None:
    block = np.array((1.3, 0.7, 0.4))
    state = np.concatenate([block - way, block, way, np.full(2, fingers / 2), np.zeros(14)])
    found = PickExpert()({"observation": state, "desired_goal": block + np.array((0.05, 0.0, 0.2))}, None)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_configuration_of_fetch_passes_the_check() -> None:
    pytest.importorskip("gymnasium_robotics")
    assert main(["run", str(PICK), "--check"]) == 0
