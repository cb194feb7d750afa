"""Demonstrations in an archive: whole episodes, as they were played."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import BadValueError, ConfigError, EnvError, StoppedError
from surreal.cli.program import main
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.envs.wrappers.intervention import Intervention
from surreal.plugins.runs.keyboard import Controls, Keyboard
from surreal.plugins.runs.recording import EPISODES_NAME, Format, Recorder
from surreal.replay.archive import ReplayArchive, import_replay
from surreal.run.build.environments import build_pool, build_spaces


class Counting(gymnasium.Env[Any, Any]):
    """Observations count the steps; an episode has four, and the second one succeeds."""

    observation_space = spaces.Dict({"step": spaces.Box(0, 99, (1,), np.float32), "number": spaces.Discrete(99)})
    action_space: Any = spaces.Discrete(4, start=1)
    fault: Any = None

    def __init__(self) -> None:
        self.number = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.number, self.step_number = self.number + 1, 0
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        is_over = self.step_number == 4
        info = {"success": self.number == 1} if is_over else {}
        reward = self.fault if self.fault is not None and self.number == 2 else float(action)
        return self._obs(), reward, is_over, False, {**self._info(), **info}

    def _obs(self) -> dict[str, Any]:
        return {"step": np.full(1, self.step_number, np.float32), "number": self.number}

    def _info(self) -> dict[str, Any]:
        return {}


class Masked(Counting):
    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(4) >= self.step_number}


class Steps:
    """Chooses the number of the step, and may discard an episode, or stop in the middle of one."""

    def __init__(self, *, discards: int = -1, stops: threading.Event | None = None, raises: Exception | None = None):
        self.discards, self.stops, self.raises, self.begun = discards, stops, raises, -1

    def reset(self, obs: Any) -> None:
        self.begun += 1

    def __call__(self, obs: Any, action: Any) -> Any:
        assert action is None
        if self.begun == 2 and obs["step"][0] == 2:
            if self.stops is not None:
                self.stops.set()
            if self.raises is not None:
                raise self.raises
        return int(obs["step"][0]) + 1

    def mark(self) -> str | None:
        return "discard" if self.begun == self.discards else None


def record(path: Path, expert: Any = None, env: Any = None, play: dict[str, Any] | None = None, **options: Any) -> Any:
    with Recorder(path, Intervention(env or Counting(), expert or Steps()), **options) as recorder:
        recorder.play(**({"episodes": 3, "stop": threading.Event()} | (play or {})))
    return recorder


def steps_of(path: Path) -> list[tuple[int, int, int, float, int]]:
    """Number of the episode, step, action, reward and flags of each step."""
    archive = ReplayArchive(path)
    archive.verify()
    found = []
    for chunk in archive.chunks():
        number, step = chunk.leaves
        for row in range(len(chunk.columns["reward"])):
            columns = (chunk.columns[name][row].item() for name in ("action", "reward", "flags"))
            found.append((number[row].item(), int(step[row, 0]), *columns))
    return found  # type: ignore[return-value]


def test_an_archive_has_what_was_played(tmp_path: Path) -> None:
    recorder = record(tmp_path / "demos")
    expected = [(number, step, step, step + 1.0, int(step == 3)) for number in range(3) for step in range(4)]
    assert steps_of(tmp_path / "demos") == expected
    lines = [json.loads(line) for line in (tmp_path / "demos" / EPISODES_NAME).read_text().splitlines()]
    assert [line["success"] for line in lines] == [False, True, False]
    assert lines[0] == {"episode_return": 10.0, "length": 4, "success": False}
    assert recorder.manifest.steps == recorder.num_steps == 12


@pytest.mark.parametrize(
    ("expert", "options", "numbers"),
    [(Steps(discards=1), {}, [0, 2, 3]), (Steps(), {"successes_only": True, "play": {"episodes": 1}}, [1])],
)
def test_discarded_episodes_and_failures_leave_nothing(
    tmp_path: Path, expert: Any, options: dict[str, Any], numbers: list[int]
) -> None:
    recorder = record(tmp_path / "demos", expert, **options)
    assert sorted({step[0] for step in steps_of(tmp_path / "demos")}) == numbers
    assert recorder.discarded == 1


def test_an_episode_beyond_the_steps_is_cut_and_truncated(tmp_path: Path) -> None:
    record(tmp_path / "demos", play={"steps": 6})
    assert [step[4] for step in steps_of(tmp_path / "demos")] == [0, 0, 0, 1, 0, 2]


def test_a_stop_keeps_whole_episodes(tmp_path: Path) -> None:
    stop = threading.Event()
    record(tmp_path / "demos", Steps(stops=stop), play={"episodes": None, "stop": stop})
    assert len(steps_of(tmp_path / "demos")) == 8
    record(tmp_path / "more", Steps(raises=StoppedError("Esc")))
    assert len(steps_of(tmp_path / "more")) == 8


@pytest.mark.parametrize("fault", [ValueError("of the expert"), float("nan"), 3e38])
def test_an_error_keeps_whole_episodes(tmp_path: Path, fault: Any) -> None:
    env = Counting()
    env.fault = None if isinstance(fault, Exception) else fault
    expert = Steps(raises=fault if isinstance(fault, Exception) else None)
    with pytest.raises(ValueError if isinstance(fault, Exception) else BadValueError):
        record(tmp_path / "demos", expert, env)
    assert len(steps_of(tmp_path / "demos")) == 8


def test_without_an_episode_there_is_no_archive(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert record(tmp_path / "demos", play={"stop": stop}).manifest is None
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_and_a_silent_expert_are_refused(tmp_path: Path) -> None:
    (tmp_path / "demos").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        record(tmp_path / "demos")
    with pytest.raises(EnvError, match="no agent that would choose one"):
        record(tmp_path / "new", lambda obs, action: None)


def test_masks_and_interventions_are_columns_as_in_a_run(tmp_path: Path) -> None:
    record(tmp_path / "demos", env=Masked(), form=Format(interventions=True, lookahead=2))
    archive = ReplayArchive(tmp_path / "demos")
    assert archive.contract.lookahead == 2
    for chunk in archive.chunks():
        assert chunk.columns["extra.is_intervention"].all()
        assert chunk.columns["extra.action_mask"].sum(1).tolist() == [4, 3, 2, 1]
        assert chunk.columns["extra.next_action_mask"].sum(1).tolist() == [3, 2, 1, 0]


def test_it_is_imported_into_a_run(tmp_path: Path, redis_server: Any, run_id: str) -> None:
    record(tmp_path / "demos")
    with RedisClient(redis_server.address, run=run_id) as client:
        result = import_replay(client, tmp_path / "demos")
        assert (result.steps, import_replay(client, tmp_path / "demos").known_chunks) == (12, 3)
        client.delete_run()


def balance(obs: Any, action: Any) -> int:
    """Balance CartPole."""
    return int(obs[2] + obs[3] > 0)


def test_the_command_records_and_reports(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "balancing.py").write_text("def expert(obs, action):\n    return int(obs[2] + obs[3] > 0)\n")
    command = ["record", "CartPole-v1", "-o", "demos", "--expert", "balancing:expert", "--steps", "30", "--seed", "1"]
    assert main(command) == 0
    assert "1 episodes with 30 steps in demos: mean return 30" in capsys.readouterr().out
    assert main(command) == 2
    assert main(["record", "CartPole-v1", "-o", "more", "--expert", "nowhere:Expert"]) == 1
    assert not (tmp_path / "more").exists()


class Drawn(gymnasium.Env[Any, Any]):
    render_mode, metadata = "rgb_array", {"render_fps": 1000}
    observation_space = spaces.Discrete(2)

    def __init__(self, space: Any, named: Any = None) -> None:
        self.action_space = space
        if named is not None:
            self.get_keys_to_action = lambda: named

    def render(self) -> Any:
        return np.zeros((8, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "named", "held", "action"),
    [
        (spaces.Discrete(2), None, {"right"}, 1),
        (spaces.Discrete(3, start=5), None, {"2"}, 7),
        (spaces.Discrete(3), None, set(), 0),
        (spaces.Discrete(9), {(): 4, (ord("w"),): 2, (ord("w"), ord("d")): 6}, {"w", "d", "x"}, 6),
        (spaces.Discrete(9), {(): 4, (ord("w"),): 2}, set(), 4),
        (spaces.Box(-2, 2, (2,)), None, {"right", "down"}, [2, -2]),
        (spaces.Box(1, 2, (1,)), None, {"right", "left"}, [1]),
    ],
)
def test_keys_choose_actions(space: Any, named: Any, held: set[str], action: Any) -> None:
    chosen = Controls(Drawn(space, named)).action(held)
    assert space.contains(chosen)
    assert np.asarray(chosen).tolist() == action


def test_spaces_without_keys_are_named() -> None:
    with pytest.raises(EnvError, match="no keys for actions of Box"):
        Controls(Drawn(spaces.Box(-1, 1, (7,))))


def test_a_person_takes_over_lets_go_and_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    keyboard = Keyboard(Drawn(spaces.Discrete(2)), always=False)

    def press(key: int, kind: int = pygame.KEYDOWN) -> Any:
        pygame.event.post(pygame.event.Event(kind, key=key))
        return keyboard(0, 1)

    try:
        assert keyboard(0, 1) is None
        assert press(pygame.K_LEFT) == 0
        assert press(pygame.K_LEFT, pygame.KEYUP) is None
        assert press(pygame.K_TAB) == 0
        assert press(pygame.K_TAB) is None
        press(pygame.K_RETURN)
        assert (keyboard.mark(), keyboard.mark()) == ("success", None)
        with pytest.raises(StoppedError):
            press(pygame.K_ESCAPE)
    finally:
        pygame.display.quit()


def test_a_keyboard_replaces_actions_of_a_training_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame.display.quit()  # of what another test drew
    wrapper = "{name: intervention, args: {expert: 'surreal.plugins.runs.keyboard:Keyboard'}}"
    overrides = [f"env.wrappers=[{wrapper}]", "env.kwargs={render_mode: rgb_array}", "env.num_envs=1"]
    config = load_config("cartpole-dqn", overrides)
    build_spaces(config)
    assert not pygame.display.get_init()
    pool = build_pool(config, index=0)

    def executed(*events: tuple[int, int]) -> int | None:
        """Let the agent choose 1 in the next step; returns the action that replaced it."""
        for kind, key in events:
            pygame.event.post(pygame.event.Event(kind, key=key))
        pool.send(np.ones(1, np.int64), np.zeros(1, np.int64))
        info = pool.recv().info
        return int(info["executed_action"][0]) if "is_intervention" in info else None

    try:
        pool.recv()
        assert executed() is None
        assert executed((pygame.KEYDOWN, pygame.K_LEFT)) == 0
        assert executed() == 0
        assert executed((pygame.KEYUP, pygame.K_LEFT)) is None
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_RETURN))
        pool.send(np.ones(1, np.int64), np.zeros(1, np.int64))
        assert pool.recv().terminated.any()
        with pytest.raises(StoppedError):
            executed((pygame.QUIT, 0))
    finally:
        pool.close()
        pygame.display.quit()
