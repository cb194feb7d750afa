"""RELAAX's ddpg and dqn: their defaults and their keys."""

from __future__ import annotations

from typing import Any

from surreal.plugins.apps.importing.draft import Draft, Table, counted, gone, gone_unless, to


def _drawn(draft: Draft, _: str, value: Any) -> None:
    """Convert a batch of transitions from a replay, with one update for each env step, like RELAAX."""
    draft.take("learner.batch_size", value)
    loops = int(draft.given.get("loop_size", 1))
    draft.settings["replay.samples_per_insert"] = float(loops * value)


def begin_ddpg(draft: Draft) -> None:
    """Set the defaults of ddpg."""
    draft.begin(
        model={"class": "surreal.model.DeterministicActorCritic", "args__hidden_sizes": [400, 300], "args__critics": 1},
        agent={
            "class": "surreal.agent.DeterministicAgent", "count": 0, "exploration": 0.2,
            "args__noise": "ornstein_uhlenbeck", "args__noise_theta": 0.15,
        },
        learner={
            "class": "surreal.learner.DDPGLearner", "args__initial_learning_rate": 1e-4,
            "args__critic_learning_rate": 1e-3, "args__target_update_tau": 1e-3, "args__l2_coeff": 0.01,
            "batch_size": 64,
        },
        replay={
            "class": "surreal.replay.UniformReplay", "capacity": 400_000, "start_size": 1000,
            "samples_per_insert": 64.0,
        },
        sender={"chunk_steps": 16, "max_delay_s": 0.5},
        broadcast={"interval_updates": 16},
        run={"max_env_steps": 10_000_000},
    )  # fmt: skip


def begin_dqn(draft: Draft) -> None:
    """Set the defaults of dqn."""
    draft.begin(
        model={"class": "surreal.model.QFunction", "args__hidden_sizes": []},
        agent={"class": "surreal.agent.QAgent", "count": 0},
        learner={"class": "surreal.learner.DQNLearner", "args__initial_learning_rate": 1e-4, "args__double": False},
        replay={"class": "surreal.replay.UniformReplay"},
        sender={"chunk_steps": 16, "max_delay_s": 0.5},
        broadcast={"interval_updates": 16},
        run={"max_env_steps": 100_000_000},
    )


def _l2(draft: Draft, _: str, __: Any) -> None:
    draft.taken += 1
    decay = draft.given.get("l2_decay", 0.01)
    draft.settings["learner.args.l2_coeff"] = float(decay) if draft.given.get("l2", True) else 0.0


def _noise(draft: Draft, _: str, value: Any) -> None:
    draft.take("agent.args.noise", "ornstein_uhlenbeck" if value else "gaussian")
    if not value:
        draft.settings.pop("agent.args.noise_theta", None)


def _epsilon(draft: Draft, key: str, value: dict[str, Any]) -> None:
    steps = value.get("decay_steps", 10_000)
    if isinstance(steps, list):
        steps = sum(steps) / len(steps)
        draft.leave_out(f"{key}.decay_steps", "the decay uses the mean of its range")
    if value.get("stochastic"):
        draft.leave_out(f"{key}.stochastic", "all agents follow one schedule; type: ape_x gives each its own epsilon")
    schedule = {"type": "linear", "start": value.get("initial", 1.0), "end": value.get("end", 0.02)}
    draft.take("agent.exploration", {**schedule, "steps": int(steps)})


def _alpha(draft: Draft, _: str, value: Any) -> None:
    draft.settings["replay.class"] = "surreal.replay.PrioritizedReplay"
    draft.take("replay.args.priority_exponent", min(1.0, float(value)))


DDPG: Table = {
    "batch_size": _drawn,
    "buffer_size": to("replay.capacity", by=int),
    "loop_size": counted,
    "actor_learning_rate": to("learner.args.initial_learning_rate", by=float),
    "critic_learning_rate": to("learner.args.critic_learning_rate", by=float),
    "tau": to("learner.args.target_update_tau", by=float),
    "l2": _l2,
    "l2_decay": _l2,
    "ou_noise": _noise,
    "exploration.ou_mu": gone_unless(0.0, "noise is around 0"),
    "exploration.ou_theta": to("agent.args.noise_theta", by=float),
    "exploration.ou_sigma": to("agent.exploration", by=float),
    "exploration.tau": gone("noise falls by env steps, not by episodes: agent.exploration takes a schedule"),
    "exploration.rnd_seed": gone("seed applies to all processes, each of which derives its own from it"),
    "use_filter": gone_unless(False, "actor and critics of DDPG have no running filters; env.wrappers has obs_scale"),
    "no_ps": gone("`surreal run --deterministic` acts and learns in one process"),
}
DQN: Table = {
    "batch_size": _drawn,
    "double_dqn": to("learner.args.double"),
    "dueling_dqn": to("model.args.dueling"),
    "start_sample_step": to("replay.start_size", by=int),
    "update_target_weights_interval": to("learner.args.target_update_period", by=int),
    "replay_buffer_size": to("replay.capacity", by=int),
    "eps": _epsilon,
    "alpha": _alpha,
}
