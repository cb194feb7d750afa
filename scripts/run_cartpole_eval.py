"""The evaluation of CartPole, without a configuration: plays without exploring, and follows the parameters."""

import argparse
import sys

from surreal.agent import QAgent
from surreal.base.system.program import run_program
from surreal.distributed import RedisClient, TorchListener
from surreal.envs import EpisodeMonitor, GymEnv, Visualization
from surreal.model import QFunction


def evaluate(args: argparse.Namespace) -> None:
    """Play episode after episode, each with the parameters of its moment."""
    env = Visualization(EpisodeMonitor(GymEnv("CartPole-v1"), report_every_s=None), show_ui=args.show)
    q_model = QFunction(hiddens=[128, 128], action_space=2)  # the same as in the agent
    q_agent = QAgent(q_model, exploration=None)
    q_agent.set_mode("eval")

    client = RedisClient(args.redis, run=args.run)
    listener = TorchListener(client, q_model)
    listener.run_listener_thread()

    try:
        listener.wait_for_first(timeout_s=300)
        obs, _ = env.reset()
        while args.episodes is None or env.num_episodes < args.episodes:
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", default="127.0.0.1:6379")
    parser.add_argument("--run", default="cartpole")
    parser.add_argument("--episodes", type=int, help="end after so many (default: at Ctrl-C)")
    parser.add_argument("--show", action="store_true", help="show them in a window")
    arguments = parser.parse_args()
    sys.exit(run_program("eval", lambda: evaluate(arguments)))
