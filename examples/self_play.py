"""Self-play: a policy learns a two-player game by playing against itself and its past versions.

The game is Nim: in turn, players take one to three matches, and the one that takes the last match wins. The perfect
strategy leaves multiples of four, and the policy has to discover it. A PettingZoo id, or a class with PettingZoo's
interface, works as well: docs/self-play.md.

    python examples/self_play.py             20 s; shows the live view, then what the policy takes from each heap
"""

import sys
from pathlib import Path

import numpy as np
from gymnasium import spaces

import surreal
from surreal.envs.players.base import Game, View

MOST = 12  # matches


class Nim(Game):
    """Nim for two players: a player gets an observation before it acts, and one at the end."""

    observation_spaces, action_spaces = (spaces.Box(0.0, 1.0, (MOST + 1,)),) * 2, (spaces.Discrete(3),) * 2
    rng = np.random.default_rng()

    def reset(self, seed=None):
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.is_over, self.left = False, int(self.rng.integers(4, MOST + 1))
        return {0: self.show()}

    def step(self, actions):
        ((player, action),) = actions.items()
        self.left -= int(action) + 1
        self.is_over = self.left == 0
        winner = {player: self.show(1.0)} if self.is_over else {}
        return {1 - player: self.show(-1.0 * self.is_over), **winner}

    def show(self, reward=0.0):
        obs, legal = np.eye(MOST + 1, dtype=np.float32)[self.left], np.arange(3) < max(1, self.left)
        return View(obs, reward, terminated=self.is_over, action_mask=legal)


def main(steps: int = 15_000) -> None:
    """Train, and look at the policy."""
    overrides = {"name": "nim", "run.max_env_steps": steps, "run.stop_at_return": None}
    overrides |= {"env.id": f"game:{Path(__file__).stem}.Nim", "python_path": [str(Path(__file__).parent)]}
    overrides |= {"self_play.every_env_steps": 2500}  # and below, rounds of 512 env steps instead of 2048
    overrides |= {"agent.round_steps": 16, "replay.args.trajectory_steps": 16, "learner.args.mini_batch": 128}
    result = surreal.train("tictactoe-selfplay-ppo", seed=1, overrides=overrides)
    game, policy = Nim(), surreal.load(result)
    for game.left in range(1, MOST + 1):
        taken = int(policy.act((view := game.show()).obs, action_mask=view.action_mask)) + 1
        print(f"{game.left} matches: it takes {taken}" + ", as it should" * (game.left % 4 == taken))


if __name__ == "__main__":
    sys.exit(surreal.run_program("self-play", main, log_level="WARNING"))
