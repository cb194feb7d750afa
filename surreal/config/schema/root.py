"""The configuration as a whole, and the conflicts between settings that are each right by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from surreal.config.schema.checkpoint import RUN_STORE, CheckpointConfig
from surreal.config.schema.env import EnvConfig
from surreal.config.schema.fields import Section, to_lower
from surreal.config.schema.rlx import RlxConfig, TrainingConfig, TrainingServerConfig
from surreal.config.schema.sections import (
    AgentConfig,
    BroadcastConfig,
    EvalConfig,
    LearnerConfig,
    ModelConfig,
    RedisConfig,
    ReplayConfig,
    RunConfig,
    SenderConfig,
)
from surreal.utils.memory import largest_replay_bytes, memory_for_replay

_SHARED_ENV = ("id", "kwargs", "wrappers", "frame_stack", "observation_space", "action_space")


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where settings came from; never a reason for two configurations to differ.

    Attributes:
        places: dotted key to "app.yaml line 12" or "--set".
    """

    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


class Config(Section):
    """Everything that decides a run. Constructors take explicit values from it, never the whole."""

    version: Literal[1] = 1
    """Version of the file format."""

    name: str = Field("surreal", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the run; its folder and its id in Redis start with it. If the file does not set it: the file's name."""

    seed: int = Field(0, ge=0, lt=2**31)
    """Seed from which every process derives its own."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for the learner's network; `auto` uses a GPU if there is one."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(to_lower)] = "info"
    """Lowest severity that is logged, in small or capital letters."""

    python_path: list[str] = []
    """Further folders to import classes from, relative to the file. The file's own folder is always searched."""

    env: EnvConfig
    model: ModelConfig = ModelConfig()
    agent: AgentConfig = AgentConfig()
    learner: LearnerConfig = LearnerConfig()
    replay: ReplayConfig = ReplayConfig()
    sender: SenderConfig = SenderConfig()
    broadcast: BroadcastConfig = BroadcastConfig()
    rlx: RlxConfig = RlxConfig()
    redis: RedisConfig = RedisConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    run: RunConfig = RunConfig()
    environment: TrainingConfig = TrainingConfig()
    relaax_rlx_server: TrainingServerConfig = TrainingServerConfig()

    _sources: Sources = PrivateAttr(default_factory=Sources)

    @property
    def lookahead(self) -> int:
        """Steps that the sender adds to the end of a segment."""
        return self.learner.n_step - 1 if self.sender.lookahead is None else self.sender.lookahead

    @property
    def num_senders(self) -> int:
        """Processes on this machine that send experience, as far as is known: agents and RLX servers; >= 1."""
        return max(1, self.agent.count + self.rlx.servers)

    @property
    def replay_addresses(self) -> list[str | None]:
        """Servers of the experience; None stands for the run's own."""
        given = self.redis.replay_address
        return list(given) if isinstance(given, list) else [given]

    @property
    def num_shards(self) -> int:
        """Streams that the experience is spread over."""
        return self.replay.shards or len(self.replay_addresses)

    @property
    def own_redis_bytes(self) -> int:
        """Memory limit of the server that the run starts itself, if it starts one."""
        replay_bytes = self.replay.max_bytes if self.redis.replay_address is None else 0
        return self.redis.maxmemory or memory_for_replay(replay_bytes)

    @property
    def largest_chunk_steps(self) -> int:
        """Env steps that one chunk may hold: to one that is almost full, each environment adds a step, and with the
        end of its episode those that were held back for their lookahead.
        """
        environments = max(self.env.num_envs, self.rlx.servers and self.rlx.clients * self.rlx.client_envs)
        return self.sender.chunk_steps - 1 + environments * (1 + self.lookahead)

    def shared(self) -> dict[str, Any]:
        """Give the part that all processes of a run must agree on, as plain data.

        What only one kind of process uses, or what may differ between machines (device, number of environments, chunk
        sizes, addresses), is not in it.
        """
        plain = self.model_dump(mode="json", by_alias=True)
        env = {key: plain["env"][key] for key in _SHARED_ENV}
        return {
            "version": plain["version"],
            "env": {key: value for key, value in env.items() if value is not None},
            "model": plain["model"],
            "replay": {"shards": self.num_shards},
            "sender": {"lookahead": self.lookahead, "compression": self.sender.compression},
            "rlx": {"reward_weights": self.rlx.reward_weights},
        }

    def source_of(self, key: str) -> str:
        """Say where a setting came from: "app.yaml line 12", "--set", or "" for a default.

        Args:
            key: dotted path; the nearest parent that is known answers for it.
        """
        places = self._sources.places
        while key and key not in places:
            key = key.rpartition(".")[0]
        return places.get(key, "")

    def with_sources(self, places: Mapping[str, str]) -> Config:
        """Give the same configuration, which remembers where its settings came from."""
        copy = self.model_copy()
        copy._sources = Sources(places)
        return copy


def conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that cannot stand together: the key to blame, and a sentence that begins with its value.

    What a replay of some class cannot work with, the class says: `surreal.replay.Replay.conflicts`.
    """
    yield from _experience_conflicts(config)
    yield from _memory_conflicts(config)
    yield from _process_conflicts(config)
    yield from _rank_conflicts(config)
    yield from _round_conflicts(config)
    if config.run.deterministic:
        yield from _order_conflicts(config)


def _experience_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    learner = config.learner
    if config.num_shards < len(config.replay_addresses):
        yield (
            "replay.shards",
            f"is {config.num_shards}, but redis.replay_address names {len(config.replay_addresses)} servers; "
            "raise shards to at least one a server",
        )
    if config.lookahead < learner.n_step - 1:
        yield (
            "sender.lookahead",
            f"is {config.lookahead}, but learner.n_step is {learner.n_step} and needs {learner.n_step - 1}; "
            "leave lookahead out or raise it",
        )


def _memory_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    replay, sender, redis = config.replay, config.sender, config.redis
    bound = largest_replay_bytes(config.own_redis_bytes)
    if redis.maxmemory is not None and redis.replay_address is None and replay.max_bytes > bound:
        yield (
            "replay.max_bytes",
            f"is {replay.max_bytes}; it must be <= {bound}, what redis.maxmemory, {redis.maxmemory}, leaves beside "
            "parameters and room for new experience; lower it or raise redis.maxmemory",
        )
    largest_chunk = replay.max_bytes // config.num_shards // 8
    if sender.chunk_max_bytes > largest_chunk:
        of_shard = f" and of {config.num_shards} shards" if config.num_shards > 1 else ""
        yield (
            "sender.chunk_max_bytes",
            f"is {sender.chunk_max_bytes}; it must be <= {largest_chunk}, an eighth of replay.max_bytes{of_shard}; "
            "lower it or raise replay.max_bytes",
        )


def _process_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    env = config.env
    if env.num_workers is not None and env.num_workers > env.num_envs:
        yield "env.num_workers", f"is {env.num_workers}; it must be <= env.num_envs, {env.num_envs}"
    if env.pool == "vector" and not env.id.startswith("ALE/"):
        if env.wrappers:
            yield "env.pool", "is vector, which takes no env.wrappers; use local or subproc, or leave the wrappers out"
        if env.frame_stack > 1:
            yield "env.pool", "is vector, which stacks frames of ALE's games only; use local or subproc"


def _rank_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what would leave a rank of the learner without experience."""
    ranks = config.learner.ranks
    if ranks == 1:
        return
    if config.num_shards < ranks:
        yield (
            "learner.ranks",
            f"is {ranks}, but there are {config.num_shards} shards, and each rank learns from some of its own; set "
            f"replay.shards to {ranks} or more",
        )
    if 0 < config.agent.count + config.rlx.servers < ranks:
        yield (
            "learner.ranks",
            f"is {ranks}, but {config.num_senders} agents and RLX servers send to as many shards at most; set "
            f"agent.count to {ranks} or more",
        )
    if "shards" in config.replay.args:
        yield "replay.args", "has shards, but learner.ranks divides the shards; leave one of them out"


def _round_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what would let agents with `agent.round_steps` wait for parameters that cannot come."""
    steps, trajectories = config.agent.round_steps, config.env.num_envs * (config.agent.count // config.learner.ranks)
    if steps is None:
        return
    if config.broadcast.interval_updates > 1:
        yield (
            "broadcast.interval_updates",
            f"is {config.broadcast.interval_updates}, but agents with agent.round_steps wait for a version after each "
            "round; set it to 1, or leave round_steps out",
        )
    if config.agent.count and config.learner.batch_size > trajectories:
        yield (
            "learner.batch_size",
            f"is {config.learner.batch_size}, but agents with agent.round_steps wait when they have sent "
            f"{trajectories} trajectories to a rank, one for each environment; lower it to that, or leave round_steps "
            "out",
        )
    if config.replay.args.get("trajectory_steps", steps) != steps:
        yield (
            "agent.round_steps",
            f"is {steps}, but replay.args.trajectory_steps is {config.replay.args['trajectory_steps']}; make them the "
            "same, or leave round_steps out",
        )


def _order_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield what would make a run with `run.deterministic` depend on anything but its counts."""
    rule = "with run.deterministic one process acts and learns, by counts alone"
    if config.rlx.servers:
        yield "rlx.servers", f"is {config.rlx.servers}, but {rule}, and clients come when they like; set it to 0"
    if config.learner.ranks > 1:
        yield "learner.ranks", f"is {config.learner.ranks}, but {rule}; set it to 1"
    if not config.agent.count:
        yield "agent.count", f"is 0, but {rule}: nobody else could join; set it to 1 or more"
    if config.num_shards > 1:
        yield "replay.shards", f"is {config.num_shards}, but {rule}, and shards have no common order; set it to 1"
    if config.replay.max_age_s is not None:
        yield "replay.max_age_s", f"is {config.replay.max_age_s:g}, but {rule}, and age is no count; leave it out"
    if config.replay.follow:
        yield "replay.follow", f"is true, but {rule}: nobody could be followed; leave it out"
    if RUN_STORE not in config.checkpoint.stores:
        yield "checkpoint.stores", f"has no {RUN_STORE!r}, but {rule}: what it begins anew from must be at hand; add it"
    if config.checkpoint.interval_updates is None and config.run.max_env_steps is None:
        yield (
            "checkpoint.interval_updates",
            f"is not set, and run.max_env_steps neither, but {rule}: nothing says when to write checkpoints; set one",
        )
