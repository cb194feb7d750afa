"""The learner side of CartPole, without a configuration. Start it and `run_cartpole_agent.py` in either order."""

import sys

from surreal.base.system.program import run_program
from surreal.distributed import RedisClient, TorchBroadcaster
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import UniformReplay

BROADCAST_FREQUENCY = 20


def learn(redis: str = "127.0.0.1:6379", run: str = "cartpole", steps: int = 60_000) -> None:
    """Sample, learn and broadcast until all agents have done `steps` env steps."""
    q_model = QFunction(hiddens=[128, 128], action_space=2)  # the same as in the agent

    client = RedisClient(redis, run=run)
    replay = UniformReplay(client, batch_size=128, capacity=50_000, start_size=1000, samples_per_insert=16)
    broadcaster = TorchBroadcaster(client, q_model)
    if broadcaster.restore():  # after a kill; must come before anything copies the model
        print(f"resuming from version {q_model.version}", flush=True)
    dqn = DQNLearner(q_model, replay)

    replay.start_threads()
    try:
        for i, batch in replay.batch_iterator():
            dqn.optimize(i, batch)
            if i % BROADCAST_FREQUENCY == 0:
                version = broadcaster.broadcast(q_model, f"update {i}")
            if i % 1000 == 0:
                print(
                    f"update {i}: version {version}, {replay.global_step} env steps, {len(replay)} in replay",
                    flush=True,
                )
            if replay.global_step >= steps:
                break
    finally:
        replay.stop()
        replay.join()
        broadcaster.close()


if __name__ == "__main__":
    sys.exit(run_program("learner", learn))
