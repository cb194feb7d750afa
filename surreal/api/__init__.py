"""Surreal from a program or a notebook: train, load a policy, act with it, evaluate it.

    import surreal

    result = surreal.train("cartpole-ppo", seed=1, overrides={"run.max_env_steps": 50_000})
    policy = surreal.load(result)
    action = policy.act(obs)
    print(surreal.evaluate(policy, episodes=100).mean_return)

`train` is `surreal run`: the same processes, the same folder, and a separate Redis if none is named.
"""

from surreal.api.policy import Policy, evaluate, load
from surreal.api.training import Result, train

__all__ = ["Policy", "Result", "evaluate", "load", "train"]
