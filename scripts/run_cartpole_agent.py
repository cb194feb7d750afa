"""The agent side of CartPole, without a configuration. Start it and `run_cartpole_learner.py` in either order."""

import sys

from surreal.agent import QAgent
from surreal.base.schedules import LinearSchedule
from surreal.base.system.program import run_program
from surreal.distributed import ExpSender, RedisClient, TorchListener
from surreal.envs import EpisodeMonitor, GymEnv
from surreal.model import QFunction


def act(redis: str = "127.0.0.1:6379", run: str = "cartpole", steps: int = 60_000) -> None:
    """Act until all agents have done `steps` env steps; send experience, and follow the learner's parameters."""
    env = EpisodeMonitor(GymEnv("CartPole-v1"))
    q_model = QFunction(hiddens=[128, 128], action_space=2)
    q_agent = QAgent(q_model, exploration=LinearSchedule(1.0, 0.05, steps=10_000))
    q_agent.set_mode("training")

    client = RedisClient(redis, run=run)
    exp_sender = ExpSender(client, chunk_steps=64, is_limited=True)  # waits for the learner
    listener = TorchListener(client, q_model)
    listener.run_listener_thread()

    try:
        obs, info = env.reset()
        while exp_sender.global_step < steps:
            action = q_agent.act(obs)  # raises the error that ended the listener, if any
            new_obs, reward, done, info = env.step(action)
            exp_sender.send([obs, new_obs], action, reward, done, info, version=q_model.version)
            obs = new_obs
            if done:
                obs, info = env.reset()
        print(f"version {q_model.version}, {exp_sender.global_step} env steps", flush=True)
    finally:
        exp_sender.close()
        listener.close()


if __name__ == "__main__":
    sys.exit(run_program("agent", act))
