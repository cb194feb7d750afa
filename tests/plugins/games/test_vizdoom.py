"""Doom by the real package: no display is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from surreal.base.errors import EnvError
from surreal.envs import WrapperSpec, make_env
from surreal.plugins.games.vizdoom import find_scenario

BASIC = {"scenario": "basic", "shape": [30, 40], "no_life": False}


@pytest.fixture(scope="module")
def doom() -> Iterator[Any]:
    """The gray game of most tests: starting one takes a quarter of a second."""
    env = make_env("surreal/ViZDoom-v0", kwargs=BASIC)
    yield env
    env.close()


def test_a_seed_makes_an_episode_repeatable(doom: Any) -> None:
    seen = []
    for _ in range(2):
        obs, _ = doom.reset(seed=3)
        assert doom.observation_space.contains(obs)
        rows = [obs, *(doom.step(action)[0] for action in (1, 1, 2, 0))]
        assert not np.array_equal(rows[0], rows[2]), "moving left moves the picture"
        seen.append(np.stack(rows))
    assert np.array_equal(*seen)
    assert not np.array_equal(doom.reset()[0], seen[0][0]), "the next episode is another one"


def test_the_time_limit_of_the_scenario_truncates_and_shows_the_last_frame(doom: Any) -> None:
    doom.reset(seed=1)
    total, steps, over = 0.0, 0, (False, False)
    while not any(over):
        obs, reward, *over, _ = doom.step(0)
        total, steps = total + reward, steps + 1
    assert over == [False, True]
    assert total == -300.0, "each tic costs 1"
    assert steps == 75, "of four tics each"
    assert obs.max() > 0


def test_a_kill_terminates_and_pays(doom: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        doom.reset(seed=int(rng.integers(1 << 30)))
        over = False
        while not over:
            # Walk to one side, and shoot: now and then that hits.
            _, reward, terminated, truncated, _ = doom.step(int(rng.choice([1, 3])))
            over = terminated or truncated
        if terminated:
            assert reward > 80
            return
    pytest.fail("no monster was hit in 60 episodes")


def test_actions_are_buttons_one_at_a_time_or_together(doom: Any) -> None:
    assert doom.action_space.n == 4
    pairs = make_env("surreal/ViZDoom-v0", kwargs={**BASIC, "max_buttons": 2})
    assert pairs.action_space.n == 7
    # Deathmatch has three buttons that take an amount, which are left out.
    assert make_env("surreal/ViZDoom-v0", kwargs={"scenario": "deathmatch"}).action_space.n == 18


def test_a_screen_in_colour_gives_the_same_gray(doom: Any) -> None:
    coloured = make_env(
        "surreal/ViZDoom-v0", kwargs={**BASIC, "no_life": True, "max_pool": False}, render_mode="rgb_array"
    )
    plain = make_env("surreal/ViZDoom-v0", kwargs={**BASIC, "max_pool": False})
    try:
        for action in (None, 1, 0):
            results = []
            for env in (coloured, plain):
                results.append(env.reset(seed=5) if action is None else env.step(action))
            difference = results[0][0].astype(int) - results[1][0]
            assert abs(difference).max() <= 2
            if action is not None:
                assert (results[0][1], results[1][1]) == (0.0, -4.0), "no_life counts no negative rewards"
        assert np.asarray(coloured.render()).shape == (120, 160, 3)
    finally:
        coloured.close()
        plain.close()


def test_ids_of_its_own_package_are_found_and_wrapped() -> None:
    wrappers = [WrapperSpec("obs_entries", {"keys": "screen"}), WrapperSpec("gray_image", {"shape": [60, 80]})]
    env = make_env("VizdoomBasic-v1", wrappers=wrappers)
    assert env.observation_space.shape == (60, 80)
    assert env.action_space.n == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["my_way_home", "DoomMyWayHome", "VizdoomMyWayHome-v1", "MyWayHome"])
def test_scenarios_are_found_by_their_names_of_today_and_of_then(name: str, tmp_path: Path) -> None:
    (tmp_path / "my_way_home.cfg").touch()
    assert find_scenario(name, tmp_path) == tmp_path / "my_way_home.cfg"


def test_scenarios_of_ones_own_and_those_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "basic.cfg").touch()
    assert find_scenario(str(tmp_path / "basic.cfg"), Path("nowhere")) == tmp_path / "basic.cfg"
    for name, message in (("basik", "did you mean basic?"), ("q", "use one of basic"), ("q.cfg", "no such file")):
        with pytest.raises(EnvError, match=message):
            find_scenario(name, tmp_path)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"max_buttons": 0}, "max_buttons is 0"),
        ({"shape": [121, 160]}, r"cannot be shrunk to \(121, 160\)"),
        ({"scenario": "basik"}, "did you mean basic?"),
    ],
)
def test_wrong_arguments_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env("surreal/ViZDoom-v0", kwargs=kwargs)


def test_a_killed_process_leaves_no_game_behind(tmp_path: Path) -> None:
    program = (
        "import time; from surreal.envs import make_env; "
        f"env = make_env('surreal/ViZDoom-v0', kwargs={BASIC}); env.reset()\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    root = str(Path(__file__).parents[4])
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (game,) = [child for child in psutil.Process(process.pid).children() if child.name() == "vizdoom"]
        assert [path.name.startswith("surreal-doom-") for path in tmp_path.iterdir()] == [True], (
            "nothing else is written"
        )
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (game.is_running() and game.status() != psutil.STATUS_ZOMBIE) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "the game outlives who started it"
        time.sleep(0.02)
