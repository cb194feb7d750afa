"""Whether a run can go on, before anything of it is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surreal.config import load_config
from surreal.envs.pools.game_pool import GamePool
from surreal.errors import CheckpointError, ConfigError, EnvError
from surreal.main.build.check import check_resumable, check_run
from surreal.main.build.environments import build_env, build_pool, build_spaces


def test_a_run_of_which_nothing_is_anywhere_cannot_go_on(tmp_path: Path) -> None:
    """Its folder may be empty on a new machine, if there are other places."""
    stores = json.dumps(["run", str(tmp_path / "backup")])
    config = load_config("cartpole-dqn", [f"checkpoint.stores={stores}"])
    with pytest.raises(CheckpointError, match=r"demo holds no run to resume, and .*backup/demo/checkpoints no"):
        check_resumable(config, tmp_path / "demo")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.num_envs=33"], "env.num_envs is 33, but game:tictactoe has 2 players, and each is an environment"),
        (
            ["env.id=pettingzoo:mpe2.simple_spread_v3", "env.num_envs=6", "learner.batch_size=6"],
            "self_play.enabled is true, but pettingzoo:mpe2.simple_spread_v3 has 3 players",
        ),
        (["self_play.reference=randon"], "player 'randon' is no function; there is `random`"),
        (["env.id=game:tictacto"], "did you mean game:tictactoe"),
    ],
)
def test_a_game_that_does_not_go_with_its_settings_is_refused_before_anything_starts(
    overrides: list[str], message: str
) -> None:
    with pytest.raises((ConfigError, EnvError), match=message):
        check_run(load_config("tictactoe-selfplay-ppo", overrides))


def test_a_game_without_self_play_is_one_policy_for_all_players() -> None:
    config = load_config(
        "cartpole-ppo",
        ["env.id=pettingzoo:mpe2.simple_tag_v3", "env.player_id=true", "eval.num_envs=1", "run.stop_at_return=null"],
    )
    check_run(config)
    spaces = build_spaces(config)
    with build_pool(config, index=0) as pool:
        assert isinstance(pool, GamePool) and pool.num_envs == config.env.num_envs == 8
        assert pool.obs_spec == spaces.obs_spec and pool.action_space == spaces.action_space
        assert pool.recv().env_ids.tolist() == list(range(8))
    env = build_env(config, training=False)
    assert env.observation_space == pool.observation_space
