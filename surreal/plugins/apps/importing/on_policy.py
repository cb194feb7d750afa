"""RELAAX's policy_gradient, da3c, dppo and trpo: their defaults and their keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from surreal.plugins.apps.importing.draft import Draft, Rule, Table, counted, gone, gone_unless, to

#: Longest trajectory that a batch is cut into, in steps.
_TRAJECTORY = 128
#: Reason why the clips of losses are not converted.
_LOSS_CLIP = (
    "it cut off the loss itself, which has no gradient beyond that; learner.args.gradients_norm_clipping bounds the "
    "gradient instead (policy_clip and critic_clip of A2CLearner bound the ratio and the value, as in PPO)"
)
#: Sets the defaults of an algorithm.
Begin = Callable[[Draft], None]


def _steps(draft: Draft, _: str, value: Any) -> None:
    """Convert a batch of steps to trajectories."""
    trajectories = math.ceil(value / _TRAJECTORY)
    steps = math.ceil(value / trajectories)
    draft.settings |= {"agent.round_steps": steps, "replay.args.trajectory_steps": steps}
    draft.settings["sender.chunk_steps"] = min(64, steps)
    draft.take("learner.batch_size", trajectories)


def begin_on_policy(learner: str, arguments: dict[str, Any], activation: str, limit: int, batch: int) -> Begin:
    """Make the function that sets the defaults of an algorithm.

    Args:
        learner: name of the class.
        arguments: its arguments that have other defaults in RELAAX.
        activation: activation of the layers.
        limit: env steps of the run.
        batch: steps of a batch.
    """

    def begin(draft: Draft) -> None:
        draft.begin(
            model={"class": "surreal.model.ActorCritic", "args__hidden_sizes": [], "args__activation": activation},
            agent={"class": "surreal.agent.PolicyAgent", "count": 0},
            learner={"class": f"surreal.learner.{learner}"} | {f"args__{key}": each for key, each in arguments.items()},
            replay={"class": "surreal.replay.FIFOReplay", "max_bytes": "256mb"},
            broadcast={"interval_updates": 1},
            run={"max_env_steps": limit},
        )
        _steps(draft, "batch_size", batch)
        draft.taken -= 1

    return begin


def begin_da3c(draft: Draft) -> None:
    """Set the defaults of da3c; RLX servers compute its gradients."""
    arguments = {"initial_learning_rate": 1e-4, "entropy_beta": 0.01, "critic_scale": 1.0}
    begin_on_policy("A2CLearner", arguments, "relu", 50_000_000, 20)(draft)
    draft.settings["learner.gradients"] = "agents"


def _of_combining(rule: str) -> Rule:
    """Make the rule of a key that applies to one way to combine gradients."""

    def chosen(draft: Draft, key: str, value: Any) -> None:
        combining = draft.given.get("combine_gradients", "fifo")
        if combining == rule:
            draft.take(f"learner.{key.rpartition('.')[2]}", value)
        else:
            draft.leave_out(key, f"combine_gradients is {combining}, which does not read it")

    return chosen


def _icm(draft: Draft, _: str, __: Any) -> None:
    draft.taken += 1
    if draft.given.get("use_icm"):
        given = {"nu": 0.8, "beta": 0.2, "lr": 1e-3} | (draft.given.get("icm") or {})
        names = {"nu": "reward_scale", "beta": "forward_share", "lr": "learning_rate"}
        draft.settings["learner.args.icm"] = {names[name]: given[name] for name in names}


def _subtype(draft: Draft, _: str, value: Any) -> None:
    if value != "ppo":
        draft.take("learner.args.subtype", value)
        return
    draft.taken += 1
    given = {"clip_e": 0.2, "learning_rate": 1e-3, "n_epochs": 4, "minibatch_size": None} | (
        draft.given.get("PPO") or {}
    )
    draft.settings |= {
        "learner.class": "surreal.learner.PPOLearner",
        "learner.args.clip_range": given["clip_e"],
        "learner.args.initial_learning_rate": given["learning_rate"],
        "learner.args.policy_iterations": given["n_epochs"],
        "learner.args.mini_batch": given["minibatch_size"],
    }


def _episodes(draft: Draft, key: str, _: Any) -> None:
    if not draft.given.get("PG_OPTIONS", {}).get("timesteps_per_batch"):
        draft.leave_out(key, "a batch is counted in steps: it is 1,000; learner.batch_size times trajectory_steps")


def _unless_ppo(rule: Rule) -> Rule:
    """Make the rule of a key that PPO, as a subtype of trpo, does not have."""

    def chosen(draft: Draft, key: str, value: Any) -> None:
        if draft.given.get("subtype") == "ppo":
            draft.leave_out(key, "the subtype is ppo, which does not have it")
        else:
            rule(draft, key, value)

    return chosen


_ARGUMENTS = {
    name: to(f"learner.args.{name}")
    for name in ("gae_lambda", "entropy_beta", "entropy_type", "critic_scale", "normalize_advantage")
}
POLICY_GRADIENT: Table = {"batch_size": _steps}
DA3C: Table = {
    **_ARGUMENTS,
    "batch_size": _steps,
    "episode_len": _steps,
    **{name: gone_unless(False, _LOSS_CLIP) for name in ("policy_clip", "critic_clip")},
    "hogwild": gone_unless(False, "one parameter server writes the parameters"),
    "combine_gradients": to("learner.combine_gradients"),
    "num_gradients": _of_combining("avg"),
    "dc_lambda": _of_combining("dc"),
    "dc_history": _of_combining("dc"),
    "use_icm": _icm,
    "icm": _icm,
}
DPPO: Table = {
    **_ARGUMENTS,
    "batch_size": _steps,
    "clip_e": to("learner.args.clip_range"),
    "lambda": to("learner.args.gae_lambda", by=float),
    "mini_batch": to("learner.args.mini_batch"),
    "entropy": to("learner.args.entropy_beta", by=lambda value: float(value or 0.0)),
    "l2_coeff": to("learner.args.l2_coeff", by=lambda value: float(value or 0.0)),
    "policy_iterations": to("learner.args.policy_iterations"),
    "value_func_iterations": to("learner.args.value_func_iterations"),
    "vf_clipped_loss": to("learner.args.vf_clipped_loss"),
}
TRPO: Table = {
    "batch_size": _steps,
    "subtype": _subtype,
    "async": gone("an RLX server waits for parameters with agent.round_steps, and never without it"),
    "return_probs": gone("a server replies with the action"),
    "PG_OPTIONS.timestep_limit": gone("the program ends an episode, with truncated=True"),
    "PG_OPTIONS.n_iter": to("learner.max_updates", by=int),
    "PG_OPTIONS.rewards_gamma": to("learner.gamma", by=float),
    "PG_OPTIONS.gae_lambda": to("learner.args.gae_lambda", by=float),
    "PG_OPTIONS.timesteps_per_batch": lambda draft, key, value: _steps(draft, key, int(value or 1000)),
    "PG_OPTIONS.episodes_per_batch": _episodes,
    "TRPO.cg_damping": _unless_ppo(to("learner.args.damping", by=float)),
    "TRPO.max_kl": _unless_ppo(to("learner.args.max_kl", by=float)),
    "TRPO.linesearch_type": _unless_ppo(to("learner.args.linesearch_type")),
    "PPO": counted,
}
