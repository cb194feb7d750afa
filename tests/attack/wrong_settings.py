"""Settings that cannot work, one of each kind, and what the check says of each.

python -m tests.attack.wrong_settings          # the table of docs/robustness.md
"""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

from surreal.base.errors import SurrealError
from surreal.config import load_config
from surreal.run.lockstep.check import check_run


class Wrong(NamedTuple):
    """A run that cannot work."""

    preset: str
    settings: dict[str, object]
    message: str  #: what the check must say of it


SMALL_IMAGE = [{"type": "convolution", "n_filters": 4, "filter_size": 99}]
WRONG = [
    # The environment.
    Wrong("cartpole-dqn", {"env.id": "CartPol-v1"}, "did you mean CartPole-v1"),
    Wrong("cartpole-dqn", {"env.kwargs": {"nope": 1}}, "nope"),
    Wrong("cartpole-dqn", {"env.wrappers": [{"name": "nope"}]}, "wrapper 'nope' does not exist"),
    Wrong("cartpole-dqn", {"env.wrappers": [{"name": "gray_image"}]}, "gray_image refuses"),
    Wrong("cartpole-dqn", {"eval.env_id": "CartPol-v1"}, "did you mean CartPole-v1"),
    Wrong("cartpole-dqn", {"eval.env_kwargs": {"nope": 1}}, "nope"),
    Wrong("tictactoe-selfplay-ppo", {"env.num_envs": 33}, "has 2 players"),
    # The model.
    Wrong("cartpole-dqn", {"model.args.convolutions": "nature"}, "not images"),
    Wrong("atari-dqn", {"model.args.convolutions": SMALL_IMAGE}, "too small"),
    Wrong("cartpole-dqn", {"model.args.activation": "rely"}, "activation 'rely' is unknown"),
    Wrong("cartpole-novel-ppo-lstm", {"model.args.lstm_type": "Fancy"}, "must be Basic or Dilated"),
    Wrong("cartpole-dqn", {"model.class": "surreal.model.ActorCritic"}, "QAgent"),
    Wrong("cartpole-ppo", {"model.class": "surreal.model.QFunction", "model.args": {}}, "PolicyAgent"),
    Wrong("pendulum-sac", {"model.class": "surreal.model.DeterministicActorCritic"}, "must be a SoftActorCritic"),
    Wrong("cartpole-dqn", {"env.id": "Pendulum-v1"}, "Box"),
    Wrong("pendulum-ddpg", {"env.id": "CartPole-v1"}, "Discrete"),
    Wrong("cartpole-r2d2", {"model.args.use_lstm": False}, "use_lstm"),
    # The agent.
    Wrong("cartpole-dqn", {"agent.class": "surreal.agent.PolicyAgent"}, "exploration"),
    Wrong("cartpole-dqn", {"agent.exploration": {"type": "linear", "steps": 0}}, "steps"),
    Wrong("pendulum-ddpg", {"agent.args": {"noise": "pink"}}, "noise"),
    # The learner.
    Wrong("cartpole-dqn", {"learner.args.optimizer": "AdamW2"}, "optimizer is 'AdamW2'"),
    Wrong("cartpole-dqn", {"learner.args.initial_learning_rate": -1}, "initial_learning_rate is -1"),
    Wrong("cartpole-dqn", {"learner.args.gradients_norm_clipping": 0}, "gradients_norm_clipping is 0"),
    Wrong("cartpole-dqn", {"learner.args.target_update_period": 0}, "target_update_period is 0"),
    Wrong("cartpole-ppo", {"learner.args.clip_range": -3}, "clip_range is -3"),
    Wrong("cartpole-ppo", {"learner.args.mini_batch": 0}, "mini_batch is 0"),
    Wrong("cartpole-ppo", {"learner.args.gae_lambda": 2}, "gae_lambda is 2"),
    Wrong("cartpole-trpo", {"model.args.value_hidden_sizes": None}, "value_hidden_sizes"),
    Wrong("cartpole-dqn", {"learner.class": "surreal.learner.PPOLearner", "learner.args": {}}, "choose two that fit"),
    Wrong(
        "cartpole-a3c",
        {"learner.class": "surreal.learner.TRPOLearner", "learner.args": {}},
        "learner.gradients is",
    ),
    Wrong("cartpole-trpo", {"learner.ranks": 2}, "learner.ranks is 2"),
    # The replay, and what is sent to it.
    Wrong("cartpole-dqn", {"replay.class": "surreal.replay.FIFOReplay"}, "has no argument"),
    Wrong("cartpole-dqn", {"replay.start_size": 90_000, "replay.capacity": 50_000}, "learning would never start"),
    Wrong("cartpole-dqn", {"replay.samples_per_insert_tolerance": 1}, "it must be >="),
    Wrong("cartpole-r2d2", {"replay.args.burn_in": 500}, "burn_in"),
    Wrong("cartpole-per-dqn", {"replay.args.priority_exponent": -1}, "priority_exponent is -1"),
    Wrong("cartpole-dqn", {"sender.compression": "zstd", "replay.observations": "remote"}, "leave compression out"),
    # What goes with a run.
    Wrong("cartpole-dqn", {"checkpoint.restore": "runs/nothing/best"}, "checkpoint.restore is 'runs/nothing/best'"),
    Wrong("cartpole-dqn", {"callbacks": [{"class": "nope.Callback"}]}, "nope"),
]


def refusal(wrong: Wrong) -> str:
    """What is said before a run with these settings; "" if nothing is."""
    try:
        check_run(load_config(wrong.preset, [f"{key}={json.dumps(value)}" for key, value in wrong.settings.items()]))
    except SurrealError as error:
        return " ".join(str(error).split())
    return ""


def main() -> None:
    """Print the table."""
    sys.stdout.write("| preset | settings | what the check says |\n|---|---|---|\n")
    for wrong in WRONG:
        settings = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in wrong.settings.items())
        said = refusal(wrong).replace("|", "\\|")
        sys.stdout.write(f"| {wrong.preset} | {settings} | {said} |\n")


if __name__ == "__main__":
    main()
