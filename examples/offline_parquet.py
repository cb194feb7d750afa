"""Offline learning from Parquet: a replay becomes a file that any tool can read, and a policy learns from it alone.

A random policy chooses the actions. `surreal replay export RUN PATH --format parquet` writes the same file for a run in
progress, and `surreal run cartpole-dqn --offline PATH` learns from it with checkpoints, metrics and evaluation.

    python examples/offline_parquet.py        10 s; prints the mean return in the file and that of the learned policy
"""

import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow.parquet

import surreal
from surreal.replay.archive import export_replay, import_replay
from surreal.run.evaluation import Evaluator

ENVS = [lambda: gymnasium.make("CartPole-v1")] * 8


def record(path: Path, steps: int) -> None:
    """Act at random, and write what happened."""
    with surreal.temporary_run() as client, surreal.LocalEnvPool(ENVS) as pool:
        with surreal.ExpSender(client, lookahead=2) as sender:
            agent = surreal.QAgent(surreal.QFunction(action_space=2), exploration=1.0)
            surreal.AgentLoop(pool, agent, sender).run(max_env_steps=steps)
        export_replay(client, path, file_format="parquet")


def learn(path: Path, updates: int) -> surreal.QFunction:
    """Import the file into a temporary run, and learn without an environment."""
    model = surreal.QFunction([128, 128], action_space=2)
    with surreal.temporary_run() as client:
        import_replay(client, path)
        with surreal.UniformReplay(client, batch_size=128, n_step=3) as replay:
            learner = surreal.DQNLearner(model, replay, initial_learning_rate=1e-3)
            batches = replay.batch_iterator()
            for _ in range(updates):
                learner.optimize(*next(batches))
    return model


def main(steps: int = 10_000, updates: int = 3000) -> None:
    """Write, read, learn, play."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive")
        record(path, steps)
        rows = pyarrow.parquet.read_table(path / "steps-00000.parquet").select(["kind", "terminated"]).to_pydict()
        model = learn(path, updates)
    recorded, episodes = rows["kind"].count("step"), sum(rows["terminated"])
    scores = Evaluator(surreal.QAgent(model), [make() for make in ENVS], rng=np.random.default_rng(1)).play(16)
    learned = np.mean([score.episode_return for score in scores])
    print(f"mean return: {recorded / episodes:.1f} in the file's {recorded} steps, {learned:.1f} learned from it")


if __name__ == "__main__":
    sys.exit(surreal.run_program("offline-parquet", main, log_level="WARNING"))
