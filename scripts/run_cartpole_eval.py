"""The evaluation of CartPole, without a configuration: plays without exploring, and follows the parameters."""

import sys

from surreal.agent import QAgent
from surreal.base.system.program import run_program
from surreal.distributed import RedisClient, TorchListener
from surreal.envs import EpisodeMonitor, GymEnv, Visualization
from surreal.model import QFunction


def evaluate(
    redis: str = "127.0.0.1:6379", run: str = "cartpole", episodes: int | None = None, show: bool = False
) -> None:
    """Play `episodes` episodes, or until Ctrl-C, each with the newest parameters; `show` opens a window."""
    env = Visualization(EpisodeMonitor(GymEnv("CartPole-v1"), report_every_s=None), show_ui=show)
    q_model = QFunction(hiddens=[128, 128], action_space=2)  # the same as in the agent
    q_agent = QAgent(q_model, exploration=None)
    q_agent.set_mode("eval")

    client = RedisClient(redis, run=run)
    listener = TorchListener(client, q_model)
    listener.run_listener_thread()

    try:
        listener.wait_for_first(timeout_s=300)
        obs, _ = env.reset()
        while episodes is None or env.num_episodes < episodes:
            action = q_agent.act(obs)
            new_obs, _, done, _ = env.step(action)
            obs = new_obs
            if done:
                score, length = env.episodes[-1]
                print(f"version {q_model.version}: return {score:g}, {length} steps", flush=True)
                obs, _ = env.reset()
    finally:
        env.close()
        listener.close()


if __name__ == "__main__":
    sys.exit(run_program("eval", evaluate))
