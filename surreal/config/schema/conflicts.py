"""Settings that contradict each other, or that nothing would act on."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.base.system.process import largest_replay_bytes
from surreal.config.schema.idle import idle_settings
from surreal.config.schema.learning import RUN_STORE
from surreal.config.schema.root import Config


def conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that cannot stand together: the key to blame, and a sentence that begins with its value.

    Conflicts of one replay class are in `surreal.replay.Replay.conflicts`.
    """
    yield from idle_settings(config)
    yield from _experience_conflicts(config)
    yield from _memory_conflicts(config)
    yield from _process_conflicts(config)
    yield from _rank_conflicts(config)
    yield from _round_conflicts(config)
    if config.rlx.max_amend_s:
        yield from _amend_conflicts(config)
    if config.env.rate_hz is not None:
        yield from _rate_conflicts(config)
    if config.env.is_game:
        yield from _game_conflicts(config)
    if config.self_play.enabled:
        yield from _self_play_conflicts(config)
    if config.has_parameter_servers:
        yield from _gradient_conflicts(config)
    if config.run.deterministic:
        yield from _order_conflicts(config)


def _experience_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    learner = config.learner
    if config.num_shards < len(config.replay_addresses):
        problem = f"is {config.num_shards}, but redis.replay_address names {len(config.replay_addresses)} servers"
        yield "replay.shards", f"{problem}; raise shards to at least one a server"
    if config.lookahead < learner.n_step - 1:
        problem = f"is {config.lookahead}, but learner.n_step is {learner.n_step} and needs {learner.n_step - 1}"
        yield "sender.lookahead", f"{problem}; leave lookahead out or raise it"


def _memory_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    replay, sender, redis = config.replay, config.sender, config.redis
    bound = largest_replay_bytes(config.own_redis_bytes)
    is_kept_there = redis.replay_address is None and not config.has_parameter_servers
    if redis.maxmemory is not None and is_kept_there and replay.max_bytes > bound:
        rest = f"what redis.maxmemory, {redis.maxmemory}, leaves next to parameters and room for new experience"
        problem = f"is {replay.max_bytes}; it must be <= {bound}, {rest}; lower it or raise redis.maxmemory"
        yield "replay.max_bytes", problem
    largest_chunk = replay.max_bytes // config.num_shards // 8
    if sender.chunk_max_bytes > largest_chunk:
        of_shard = f" and of {config.num_shards} shards" if config.num_shards > 1 else ""
        problem = f"is {sender.chunk_max_bytes}; it must be <= {largest_chunk}, an eighth of replay.max_bytes{of_shard}"
        yield "sender.chunk_max_bytes", f"{problem}; lower it or raise replay.max_bytes"


def _process_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    env = config.env
    if env.num_workers is not None and env.num_workers > env.num_envs:
        yield "env.num_workers", f"is {env.num_workers}; it must be <= env.num_envs, {env.num_envs}"
    if env.has_interventions and (env.is_vector or env.is_game):
        what = "env.id is a game of several players" if env.is_game else f"env.pool is {env.pool}"
        yield "env.interventions", f"is true, but {what}, where nothing tells of replaced actions; leave it out"
    if env.has_interventions and env.observation_space == "raw":
        yield "env.interventions", "is true, but env.observation_space is raw: nothing is recorded; leave it out"
    if env.is_vector and not env.id.startswith("ALE/"):
        if env.wrappers:
            takes = f"is {env.pool}, which takes no env.wrappers; use local or subproc, or leave the wrappers out"
            yield "env.pool", takes
        if env.frame_stack > 1:
            yield "env.pool", f"is {env.pool}, which stacks frames of ALE's games only; use local or subproc"


def _amend_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings under which a step cannot wait for its reward."""
    shown = f"is {config.rlx.max_amend_s:g}, but"
    if config.agent.round_steps is not None and config.rlx.on_full == "wait":
        yield "rlx.max_amend_s", f"{shown} agent.round_steps makes sessions wait for parameters; leave one of them out"
    if config.has_parameter_servers:
        yield "rlx.max_amend_s", f"{shown} learner.gradients is agents: servers learn at once; set it to learner"


def _rank_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that would leave a rank of the learner without experience."""
    ranks = config.learner.ranks
    if ranks == 1:
        return
    if config.num_shards < ranks:
        problem = f"is {ranks}, but there are {config.num_shards} shards, and each rank learns from its own shards"
        yield "learner.ranks", f"{problem}; set replay.shards to {ranks} or more"
    if 0 < config.agent.count + config.rlx.servers < ranks:
        problem = f"is {ranks}, but {config.num_senders} agents and RLX servers send to as many shards at most"
        yield "learner.ranks", f"{problem}; set agent.count to {ranks} or more"
    if config.device not in ("auto", "cpu", "cuda"):
        problem = f"is {config.device}, but learner.ranks is {ranks}, and each rank of a machine takes its own GPU"
        yield "device", f"{problem}; set device to cuda or cpu"
    if "shards" in config.replay.args:
        yield "replay.args", "has shards, but learner.ranks divides the shards; leave one of them out"


def _round_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that would make agents with `agent.round_steps` wait for parameters that cannot come."""
    agents = config.agent.count // config.learner.ranks
    if config.has_parameter_servers:  # each agent has its trajectories for itself
        agents = min(1, agents)
    steps, trajectories = config.agent.round_steps, config.env.num_envs * agents
    if steps is None:
        return
    if config.broadcast.interval_updates > 1:
        problem = "but agents with agent.round_steps wait for a version after each round"
        advice = "set it to 1, or leave round_steps out"
        yield "broadcast.interval_updates", f"is {config.broadcast.interval_updates}, {problem}; {advice}"
    if config.agent.count and config.learner.batch_size > trajectories:
        sent = f"{trajectories} trajectories to a rank, one for each environment"
        problem = f"is {config.learner.batch_size}, but agents with agent.round_steps wait when they have sent {sent}"
        yield "learner.batch_size", f"{problem}; lower it to that, or leave round_steps out"
    if config.replay.args.get("trajectory_steps", steps) != steps:
        problem = f"is {steps}, but replay.args.trajectory_steps is {config.replay.args['trajectory_steps']}"
        yield "agent.round_steps", f"{problem}; make them the same, or leave round_steps out"


def _rate_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that would keep an agent from acting in time."""
    shown = f"is {config.env.rate_hz:g}, but"
    if config.agent.round_steps is not None:
        yield "env.rate_hz", f"{shown} agent.round_steps makes agents wait for parameters; leave one of them out"
    if config.has_parameter_servers:
        yield "env.rate_hz", f"{shown} learner.gradients is agents: agents also learn; set it to learner"
    if config.run.deterministic:
        yield "env.rate_hz", f"{shown} run.deterministic goes by counts, not by the clock; leave one of them out"
    if config.env.is_game:
        yield "env.rate_hz", f"{shown} env.id, {config.env.id}, is a game of several players; leave it out"


def _order_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that would make a run with `run.deterministic` depend on anything but its counts."""
    rule = "with run.deterministic one process acts and learns, by counts alone"
    if config.rlx.servers:
        yield "rlx.servers", f"is {config.rlx.servers}, but {rule}, and clients come when they like; set it to 0"
    if config.learner.ranks > 1:
        yield "learner.ranks", f"is {config.learner.ranks}, but {rule}; set it to 1"
    if not config.agent.count:
        yield "agent.count", f"is 0, but {rule}: no other agent could join; set it to 1 or more"
    if config.num_shards > 1:
        yield "replay.shards", f"is {config.num_shards}, but {rule}, and shards have no common order; set it to 1"
    if config.replay.max_age_s is not None:
        yield "replay.max_age_s", f"is {config.replay.max_age_s:g}, but {rule}, and age is not a count; leave it out"
    if config.replay.follow:
        yield "replay.follow", f"is true, but {rule}: no owner could be followed; leave it out"
    if RUN_STORE not in config.checkpoint.stores:
        problem = f"has no {RUN_STORE!r}, but {rule}: what it starts again from must be at hand"
        yield "checkpoint.stores", f"{problem}; add it"
    if config.checkpoint.interval_updates is None and config.run.max_env_steps is None:
        problem = f"is not set, and run.max_env_steps neither, but {rule}: no setting tells when to write checkpoints"
        yield "checkpoint.interval_updates", f"{problem}; set one"


def _game_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    env, rule = config.env, f"env.id, {config.env.id}, is a game of several players"
    if env.pool != "local":
        yield "env.pool", f"is {env.pool}, but {rule}, which are played in the agent's process; set it to local"
    if env.wrappers:
        yield "env.wrappers", f"has wrappers, but {rule}; wrap the game in your own module, and name that in env.id"
    if env.frame_stack > 1:
        yield "env.frame_stack", f"is {env.frame_stack}, but {rule}, whose frames are not stacked; set it to 1"
    if env.action_space is not None:
        yield "env.action_space", f"is written down, but {rule}, which says so itself; leave it out"
    if config.rlx.servers:
        yield "rlx.servers", f"is {config.rlx.servers}, but {rule}, and clients bring environments of one; set it to 0"


def _gradient_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield settings that do not fit agents that keep their experience, to compute gradients from it."""
    rule = "learner.gradients is agents: each agent keeps its experience, and computes from it"
    if config.run.deterministic:
        problem = "is agents, but with run.deterministic one process acts and learns"
        yield "learner.gradients", f"{problem}; set it to learner"
    if config.rlx.servers and config.rlx.on_full == "drop":
        yield "rlx.on_full", f"is drop, but {rule}, while sessions wait; set it to wait"
    if config.env.observation_space == "raw":
        yield "env.observation_space", f"is raw, but {rule}, and raw states cannot be stored; write the space down"
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


def _self_play_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    learner = config.learner
    if not config.env.is_game:
        problem = f"is true, but env.id, {config.env.id}, is not a game"
        yield "self_play.enabled", f"{problem}; name one, such as game:tictactoe"
    if config.run.deterministic:
        problem = "is true, but with run.deterministic one process acts and learns, by counts alone"
        arrival = "and when the results of games arrive is up to the clock"
        yield "self_play.enabled", f"{problem}, {arrival}; set one of them to false"
    if config.has_parameter_servers:
        yield "self_play.enabled", f"is true, but learner.gradients is {learner.gradients}; set that to learner"
    if config.replay.follow:
        problem = "is true, and so is replay.follow; the run's first learner keeps the versions, set it to false"
        yield "self_play.enabled", problem
