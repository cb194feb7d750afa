"""A saved policy: load it, act with it, evaluate it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.errors import EnvError
from surreal.config import Config, add_python_path
from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import describe_observations
from surreal.run.build.acting import build_evaluator
from surreal.run.build.environments import Spaces, build_env, env_spaces, written_spaces
from surreal.run.build.saved_policy import load_policy
from surreal.run.evaluation import EvaluationRound
from surreal.run.session.acting import saved_agent
from surreal.run.view.play import fresh_rng, play_policy


class _Trained(Protocol):
    """A result of `train`."""

    @property
    def folder(self) -> Path: ...


class Policy:
    """A saved policy that acts, without a run and without Redis.

        policy = surreal.load("runs/demo")
        obs, _ = env.reset()
        policy.reset()
        action = policy.act(obs)

    Observations are as the configuration's wrappers give them, and actions as the environment takes them. A recurrent
    policy remembers each row of a batch from call to call: call `reset` where episodes begin.

    Args:
        path: the file's path, or a name.
        seed: the seed of policies that draw actions; None gives other actions each time.
        trust: see `load`.
        policies: see `load`.

    Attributes:
        saved: the file's content.
        agent: the agent that acts.
        config: the configuration of the run that it comes from.
        version: the version of its parameters.
        observation_space: the space of one observation.
        obs_spec: its arrays.
        action_space: the environment's action space.

    Raises:
        CheckpointError: the file is missing, damaged, or holds no policy.
        ConfigError: the file names code outside of Surreal, and is not trusted.
        EnvError: the environment, whose spaces it needs, cannot be made.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, seed: int | None = None, trust: bool = False, policies: str | None = None
    ) -> None:
        self.saved = load_policy(path, trust=trust, policies=policies)
        self.config, self.version = self.saved.config, self.saved.version
        add_python_path(self.config.python_path)
        self.observation_space, self.action_space = _spaces_of(self.config)
        self._adapter = ActionAdapter(self.action_space)
        self.obs_spec = describe_observations(self.observation_space)
        spaces = Spaces(self.obs_spec, self._adapter.space)
        self.agent = saved_agent(self.saved, self.config, spaces, rng=fresh_rng(seed))
        self.agent.set_mode("eval")
        self._begins = True

    def __repr__(self) -> str:
        observation = ", ".join(
            f"{leaf.name or 'obs'} {list(leaf.shape)} {leaf.dtype}" for leaf in self.obs_spec.leaves
        )
        return f"<Policy of {self.config.name}, version {self.version}: {observation} -> {self.action_space}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy's file to another place, for `surreal.load`; raises `CheckpointError` or `OSError`."""
        self.saved.save(Path(path))

    def reset(self) -> None:
        """Begin new episodes with the next observations."""
        self._begins = True

    def act(
        self, obs: Any, *, action_mask: NDArray[np.bool_] | None = None, first: NDArray[np.bool_] | None = None
    ) -> Any:
        """Choose the best action known.

        Args:
            obs: an observation in `observation_space`, or a batch of them, with one axis more in each array.
            action_mask: which discrete actions are legal, [n] or [B, n]; None: all.
            first: [B] rows of a batch that begin an episode; None: all after `reset`, else none.

        Returns:
            An action of `action_space`; for a batch, a list of them.

        Raises:
            ValueError: the observation, the mask or `first` has another shape.
        """
        is_single = self.obs_spec.count_rows(obs) is None
        rows = tree.map_leaves(lambda part: np.asarray(part)[None] if is_single else np.asarray(part), obs)
        count = len(tree.first_leaf(rows))
        mask = None if action_mask is None else np.asarray(action_mask, np.bool_).reshape(count, -1)
        begins = np.full(count, self._begins) if first is None else np.asarray(first, np.bool_)
        if begins.shape != (count,):
            raise ValueError(f"first has shape {list(begins.shape)}; it must be [{count}]")
        num_actions = getattr(self.action_space, "n", None)
        if mask is not None and num_actions is not None and mask.shape[1] != num_actions:
            given = list(np.asarray(action_mask).shape)
            raise ValueError(f"action_mask has shape {given}; it must be [{num_actions}], with B before it in a batch")
        self._begins = False
        chosen = self.agent.act_batch(rows, np.zeros(count, np.bool_), np.arange(count), begins, mask)
        actions = list(self._adapter.rows(chosen.actions))
        return actions[0] if is_single else actions


def load(
    source: str | os.PathLike[str] | _Trained,
    *,
    seed: int | None = None,
    trust: bool = False,
    policies: str | None = None,
) -> Policy:
    """Load a policy.

    Args:
        source: a file (`best.safetensors`, a learner's checkpoint, or what `surreal export` wrote), a run's folder, of
            which the best policy is taken, else the newest checkpoint, what `train` gave, or the name of a pretrained
            policy, such as "cartpole-ppo".
        seed: see `Policy`.
        trust: whether classes and folders that the file names may be imported, which runs their code. What `train` gave
            is trusted.
        policies: folder or https address of pretrained policies; None is that of `SURREAL_POLICIES`, otherwise those
            of the installation. A file that differs from its digest in the index there is refused.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigError: there is no policy of that name, or the file names code outside of Surreal, and is not trusted.
    """
    if isinstance(source, str | os.PathLike):
        return Policy(source, seed=seed, trust=trust, policies=policies)
    return Policy(source.folder, seed=seed, trust=True)


def _spaces_of(config: Config) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """The spaces of observations and actions: as they are written down, else those of the environment."""
    if (written := written_spaces(config)) is not None:
        if written.observation is None:
            raise EnvError("env.observation_space is raw: a policy for observations of any form acts in its run alone")
        return written.observation, written.action
    with closing(build_env(config, training=False)) as env:
        return env.observation_space, env.action_space


def evaluate(
    policy: Policy, env: gymnasium.Env[Any, Any] | str | None = None, *, episodes: int = 100, seed: int | None = None
) -> EvaluationRound:
    """Play whole episodes as the run's evaluation does: with the best actions known, or with samples (`eval.sample`).

    Args:
        policy: what `load` gave.
        env: an id, which gets the wrappers of the policy's configuration, or an environment, which is played as it is;
            None is that of the configuration.
        episodes: >= 1.
        seed: the seed of the episodes; None gives other episodes each time.

    Returns:
        Its `mean_return`, `std_return` and `standard_error`, `mean_length`, and the `scores` of all episodes.

    Raises:
        EnvError: the environment cannot be made.
    """
    rng, saved, config = fresh_rng(seed), policy.saved, policy.config
    if env is None or isinstance(env, str):
        section = config.eval if env is None else config.eval.model_copy(update={"env_id": env})
        saved = replace(saved, config=config.model_copy(update={"eval": section}))
        scores = play_policy(saved, episodes, rng=rng)
    else:
        agent = saved_agent(saved, config, env_spaces(env), rng=rng)
        scores = build_evaluator(config, agent, [env], rng=rng).play(episodes)
        agent.close()
    return EvaluationRound(0, saved.version, tuple(scores))
