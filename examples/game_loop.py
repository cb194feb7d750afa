"""A game with its own loop, as in Godot or Unity, whose player is an agent over RLX.

The engine calls `tick` 60 times a second. Every sixth tick, the game sends its observation and the reward since the
last one. It receives an action, which applies until the next one. Without `--rlx-server`, the program starts a run.

    python examples/game_loop.py             30 s; prints the mean score of every ten matches
    python examples/game_loop.py --rlx-server HOST:PORT --max-episodes 100 --show-ui      uses that server, at 60 Hz
"""

import random
import shlex
import sys
import time

import surreal
from surreal.rlx import TrainingBase


class Catch(TrainingBase):
    """Balls fall, and a paddle catches them; a match is ten balls."""

    paddle, ball_x, ball_y, ten_matches = 0.5, 0.5, 0.0, 0.0

    def tick(self, action):
        self.paddle = min(1.0, max(0.0, self.paddle + 0.03 * (action - 1)))
        self.ball_y += 1 / 30
        if self.ball_y < 1.0:
            return 0.0
        reward = 1.0 if abs(self.ball_x - self.paddle) < 0.15 else -1.0
        self.ball_x, self.ball_y = random.random(), 0.0
        return reward

    def episode(self, number):
        action, score, gained = self.agent.update(None, [self.paddle, self.ball_x, self.ball_y]), 0.0, 0.0
        for tick in range(1, 301):
            gained += self.tick(action)
            if tick % 6 == 0:
                seen = [self.paddle, self.ball_x, self.ball_y]
                action = self.agent.update(gained, seen, truncated=tick == 300)
                score, gained = score + gained, 0.0
            time.sleep(1 / 60 if self.show_ui else 0)
        self.ten_matches += score
        if number % 10 == 9:
            print(f"mean score of matches {number - 8} to {number + 1}: {self.ten_matches / 10}", flush=True)
            self.ten_matches = 0.0
        return score


def main(matches: int = 200) -> None:
    """Start a run of which this file is the game."""
    overrides = {"name": "catch", "env.observation_space.shape": [3], "rlx.demo": False, "rlx.on_full": "wait"}
    overrides |= {"environment.run": f"python {shlex.quote(__file__)}", "environment.max_episodes": matches}
    overrides |= {"agent.exploration.steps": 25 * matches, "rlx.port": 0}
    surreal.train("catch-rlx", seed=1, overrides=overrides)


if __name__ == "__main__":
    is_game = "--rlx-server" in sys.argv
    sys.exit(not Catch().run() if is_game else surreal.run_program("game-loop", main, log_level="WARNING"))
