"""Settings that are given and that nothing would act on: they are refused, so that none is dropped in silence.

A setting counts as given if it has another value than its default. One that acts only in processes that others start,
on this machine or elsewhere (`surreal eval`, `surreal rlx-server`), acts.
"""

from __future__ import annotations

from collections.abc import Iterator

from surreal.config.schema.fields import Section
from surreal.config.schema.root import Config


def idle_settings(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that would do nothing: the key to blame, and a sentence that begins with its value."""
    yield from _of_experience(config)
    yield from _of_acting(config)
    yield from _of_gradients(config)
    yield from _of_rlx(config)
    yield from _of_evaluation(config)
    yield from _of_games(config)
    yield from _of_own_server(config)


def _of_experience(config: Config) -> Iterator[tuple[str, str]]:
    replay, sender = config.replay, config.sender
    if replay.mirror_max_bytes is not None and replay.observations not in (None, "auto"):
        yield (
            "replay.mirror_max_bytes",
            f"is {replay.mirror_max_bytes}, but replay.observations is {replay.observations}, and only auto asks for it"
            "; leave mirror_max_bytes out, or set observations to auto",
        )
    tolerance = replay.samples_per_insert_tolerance
    if tolerance is not None and replay.samples_per_insert is None:
        yield (
            "replay.samples_per_insert_tolerance",
            f"is {tolerance:g}, but replay.samples_per_insert is not set; set it, or leave the tolerance out",
        )
    if _is_given(sender, "wait_timeout_s") and sender.on_full == config.rlx.on_full == "drop":
        yield (
            "sender.wait_timeout_s",
            f"is {sender.wait_timeout_s:g}, but sender.on_full and rlx.on_full are drop: nobody waits for room; "
            "leave wait_timeout_s out, or set one of them to wait",
        )


def _of_acting(config: Config) -> Iterator[tuple[str, str]]:
    env, agent = config.env, config.agent
    if env.num_workers is not None and env.pool != "subproc":
        yield "env.num_workers", f"is {env.num_workers}, but env.pool is {env.pool}; only subproc has workers"
    if env.pool == "vector" and agent.show_ui:
        yield (
            "agent.show_ui",
            "is true, but env.pool is vector, whose environments draw in no window; use local or subproc",
        )
    if agent.round_steps is None and _is_given(agent, "round_timeout_s"):
        yield (
            "agent.round_timeout_s",
            f"is {agent.round_timeout_s:g}, but agent.round_steps is not set: agents never wait for a round; set it, "
            "or leave round_timeout_s out",
        )
    if agent.round_steps is not None and not agent.count and config.rlx.servers and config.rlx.on_full == "drop":
        yield (
            "agent.round_steps",
            f"is {agent.round_steps}, but agent.count is 0, and RLX servers with rlx.on_full: drop never wait; set "
            "on_full to wait, or leave round_steps out",
        )


#: What acts only where agents compute the gradients.
_OF_AGENTS = (
    ("learner", "combine_gradients", "num_gradients", "dc_lambda", "dc_history"),
    ("learner", "gradients_dtype", "gradients_max_bytes", "gradients_max_lag", "gradients_timeout_s"),
    ("agent", "per_process"),
    ("parameter_server", "servers"),
)
#: What acts only with one way to combine them.
_OF_COMBINING = {"num_gradients": "avg", "dc_lambda": "dc", "dc_history": "dc"}


def _of_gradients(config: Config) -> Iterator[tuple[str, str]]:
    learner = config.learner
    if not config.has_parameter_servers:
        for section, *names in _OF_AGENTS:
            settings: Section = getattr(config, section)
            for name in names:
                if _is_given(settings, name):
                    yield (
                        f"{section}.{name}",
                        f"is {getattr(settings, name)}, but learner.gradients is learner: the learner computes them, "
                        f"and steps; set gradients to agents, or leave {name} out",
                    )
        return
    yield from _of_own_experience(config)
    for name, way in _OF_COMBINING.items():
        if _is_given(learner, name) and learner.combine_gradients != way:
            yield (
                f"learner.{name}",
                f"is {getattr(learner, name)}, but learner.combine_gradients is {learner.combine_gradients}; set that "
                f"to {way}, or leave {name} out",
            )


def _of_own_experience(config: Config) -> Iterator[tuple[str, str]]:
    """Of experience that each agent keeps, to compute gradients from."""
    rule = "learner.gradients is agents: each agent keeps its experience, and computes from it"
    if config.run.deterministic:
        yield (
            "learner.gradients",
            "is agents, but with run.deterministic one process acts and learns; set it to learner",
        )
    if config.rlx.servers and config.rlx.on_full == "drop":
        yield "rlx.on_full", f"is drop, but {rule}, while sessions wait; set it to wait"
    if config.env.observation_space == "raw":
        yield "env.observation_space", f"is raw, but {rule}, and raw states are no experience; write the space down"
    if config.learner.ranks > 1:
        yield "learner.ranks", f"is {config.learner.ranks}, but {rule}, and no learner has ranks; leave it out"
    if config.learner.threads is not None:
        yield "learner.threads", f"is {config.learner.threads}, but {rule}, and no learner has threads; leave it out"
    if config.num_shards > 1:
        yield "replay.shards", f"is {config.num_shards}, but {rule}; set it to 1"
    if config.replay.follow:
        yield "replay.follow", f"is true, but {rule}: there is no stream to follow; leave it out"
    if config.replay.observations == "remote":
        yield "replay.observations", f"is remote, but {rule}, so they are nowhere else; leave it out"
    if config.sender.on_full == "drop":
        yield "sender.on_full", f"is drop, but {rule}, and always has room; leave it out"


def _of_rlx(config: Config) -> Iterator[tuple[str, str]]:
    rlx = config.rlx
    if rlx.clients and not rlx.servers:
        yield "rlx.clients", f"is {rlx.clients}, but rlx.servers is 0: nobody would answer them; set it to 1"
    if config.environment.count and not rlx.servers:
        yield (
            "environment.run",
            f"is {config.environment.run!r}, but rlx.servers is 0: nobody would answer it; set that to 1",
        )
    if not rlx.clients and _is_given(rlx, "client_envs"):
        yield (
            "rlx.client_envs",
            f"is {rlx.client_envs}, but rlx.clients is 0: the run starts none that would have environments; "
            "set clients, or client_envs to 1",
        )
    if config.env.observation_space == "raw":
        for name in ("largest_state", "outside_bounds"):
            if _is_given(rlx, name):
                yield (
                    f"rlx.{name}",
                    f"is {getattr(rlx, name)}, but env.observation_space is raw: states reach the agent as they came; "
                    f"leave {name} out, or write the space down",
                )


def _of_evaluation(config: Config) -> Iterator[tuple[str, str]]:
    evaluation, goal = config.eval, config.run.stop_at_return
    if not evaluation.enabled and goal is not None:
        yield "run.stop_at_return", "is set, but eval.enabled is false: nothing would measure the return"
    # Who takes a preset's goal away need not look for what belongs to it.
    is_taken_away = "stop_at_return" in config.run.model_fields_set
    if goal is None and not is_taken_away and evaluation.confirm_episodes and _is_given(evaluation, "confirm_episodes"):
        confirm = evaluation.confirm_episodes
        yield "eval.confirm_episodes", f"is {confirm}, but run.stop_at_return is not set: nothing is to be confirmed"
    if not evaluation.enabled and evaluation.record_video_every:
        yield "eval.record_video_every", "is set, but eval.enabled is false: nothing would record"


def _of_games(config: Config) -> Iterator[tuple[str, str]]:
    settings = config.self_play
    if config.env.player_id and not config.env.is_game:
        yield "env.player_id", f"is true, but env.id, {config.env.id}, is no game of several players; leave it out"
    if not settings.enabled:
        for name in type(settings).model_fields:
            if _is_given(settings, name):
                yield (
                    f"self_play.{name}",
                    f"is {getattr(settings, name)}, but self_play.enabled is false; set it to true",
                )
    elif settings.sampling != "pfsp" and _is_given(settings, "pfsp_exponent"):
        yield (
            "self_play.pfsp_exponent",
            f"is {settings.pfsp_exponent:g}, but self_play.sampling is {settings.sampling}; leave it out",
        )


def _of_own_server(config: Config) -> Iterator[tuple[str, str]]:
    redis = config.redis
    if redis.address is None:
        return
    foreign = "but redis.address (or --redis) names a server that this run does not start"
    if redis.appendonly:
        yield "redis.appendonly", f"is true, {foreign}; set appendonly in that server, or leave the address out"
    if redis.maxmemory is not None:
        yield "redis.maxmemory", f"is {redis.maxmemory}, {foreign}; set maxmemory in that server, or leave it out here"


def _is_given(section: Section, name: str) -> bool:
    return bool(getattr(section, name) != type(section).model_fields[name].default)
