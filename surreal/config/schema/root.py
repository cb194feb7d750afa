"""The configuration as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from surreal.base.errors import ConfigError
from surreal.base.system.process import least_new_rows, memory_for_replay
from surreal.config.schema import sections
from surreal.config.schema.environment import EnvConfig, SelfPlayConfig
from surreal.config.schema.fields import ClassSection, Device, Section, to_lower
from surreal.config.schema.learning import CheckpointConfig, LearnerConfig, ParameterServerConfig
from surreal.config.schema.rlx import RlxConfig, TrainingConfig, TrainingServerConfig

_SHARED_ENV = ("id", "kwargs", "wrappers", "frame_stack", "observation_space", "action_space")


@dataclasses.dataclass(frozen=True)
class Sources:
    """The places that settings came from; two configurations that differ only in them are equal."""

    #: dotted key to "app.yaml line 12" or "--set"
    places: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


class Config(Section):
    """Everything that decides a run. Constructors take explicit values from it, never the whole."""

    version: Literal[1] = 1
    """Version of the file format."""

    name: str = Field("surreal", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the run; its folder and its id in Redis start with it. If the file does not set it: the file's name."""

    seed: int = Field(0, ge=0, lt=2**31)
    """Seed from which every process derives its own."""

    device: Device = "auto"
    """Where the learner computes: `cpu`, `cuda`, `cuda:1` (the second GPU), or `mps` (Apple's GPUs). `auto` is `cuda`
    if torch can use it, else `cpu`."""

    log_level: Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(to_lower)] = "info"
    """Lowest severity that is logged, in small or capital letters."""

    python_path: list[str] = []
    """Further folders to import classes from, relative to the file. The file's own folder is always searched."""

    env: EnvConfig
    model: sections.ModelConfig = sections.ModelConfig()
    agent: sections.AgentConfig = sections.AgentConfig()
    learner: LearnerConfig = LearnerConfig()
    parameter_server: ParameterServerConfig = ParameterServerConfig()
    replay: sections.ReplayConfig = sections.ReplayConfig()
    sender: sections.SenderConfig = sections.SenderConfig()
    broadcast: sections.BroadcastConfig = sections.BroadcastConfig()
    rlx: RlxConfig = RlxConfig()
    redis: sections.RedisConfig = sections.RedisConfig()
    eval: sections.EvalConfig = sections.EvalConfig()
    self_play: SelfPlayConfig = SelfPlayConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    run: sections.RunConfig = sections.RunConfig()
    callbacks: list[ClassSection] = []
    """Told what happens: classes that extend `surreal.run.observers.Callback`, each with its `args`."""

    sinks: list[ClassSection] = []
    """Places for metrics in addition to the run's folder: classes that extend `surreal.run.observers.MetricSink`, such
    as `surreal.run.observers.CsvSink`, each with its `args`."""

    environment: TrainingConfig = TrainingConfig()
    relaax_rlx_server: TrainingServerConfig = TrainingServerConfig()

    _sources: Sources = PrivateAttr(default_factory=Sources)

    @property
    def lookahead(self) -> int:
        """Steps that the sender adds to the end of a segment."""
        return self.learner.n_step - 1 if self.sender.lookahead is None else self.sender.lookahead

    @property
    def has_parameter_servers(self) -> bool:
        """Whether agents compute the gradients, and parameter servers take the learner's place."""
        return self.learner.gradients == "agents"

    @property
    def num_servers(self) -> int:
        """Processes that publish a part of the parameters each: parameter servers, or one learner."""
        return self.parameter_server.servers if self.has_parameter_servers else 1

    @property
    def published_policy(self) -> str:
        """Name under which parameters are published, or the part of the first of several servers."""
        policy, number = self.broadcast.policy, self.num_servers
        return policy if number == 1 else f"{policy}.0of{number}"

    @property
    def num_agents(self) -> int:
        """Number of agents that `surreal run` starts, of which a process may have several, and RLX servers; >= 1."""
        return max(1, self.agent.count * self.agent.per_process + self.rlx.servers)

    @property
    def has_exact_rounds(self) -> bool:
        """Whether all agents act in rounds in which each environment has as many steps."""
        has_sessions = self.rlx.servers > 0 or not self.agent.count
        return self.agent.round_steps is not None and not has_sessions and not self.env.shares_rounds

    @property
    def num_senders(self) -> int:
        """Number of senders that fill a replay, as far as known: agents and RLX servers of this machine; >= 1."""
        return 1 if self.has_parameter_servers else max(1, self.agent.count + self.rlx.servers)

    @property
    def replay_addresses(self) -> list[str | None]:
        """Servers of the experience; None: the run's own server."""
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
        if self.has_parameter_servers:  # in place of experience
            replay_bytes = self.learner.gradients_max_bytes
        return self.redis.maxmemory or memory_for_replay(replay_bytes)

    @property
    def largest_chunk_steps(self) -> int:
        """Largest number of env steps in a chunk: in one turn, all environments may release their lookahead."""
        return self.chunk_steps - 1 + self._environments * (1 + self.lookahead)

    @property
    def chunk_steps(self) -> int:
        """Env steps of a chunk: `sender.chunk_steps`, or more where frames are stacked, see `ExpSender`."""
        stack, given = self.env.frame_stack, self.sender.chunk_steps
        return given if stack == 1 else max(given, least_new_rows(self._environments * (self.lookahead + stack)))

    @property
    def _environments(self) -> int:
        return max(self.env.num_envs, self.rlx.servers and self.rlx.clients * self.rlx.client_envs)

    def shared(self) -> dict[str, Any]:
        """Return the part that all processes of a run must agree on, as plain data.

        What only one kind of process uses, or what may differ between machines (device, number of environments, chunk
        sizes, addresses), is not in it.
        """
        plain = self.model_dump(mode="json", by_alias=True)
        env = {key: plain["env"][key] for key in _SHARED_ENV} | {
            "player_id": self.env.player_id or None,
            "interventions": self.env.has_interventions or None,
        }
        return {
            "version": plain["version"],
            "env": {key: value for key, value in env.items() if value is not None},
            # Nothing that runs without games would have to say.
            **({"self_play": {"enabled": True}} if self.self_play.enabled else {}),
            "model": plain["model"],
            # Agents compute what servers apply, so both need the same learner.
            **({key: plain[key] for key in ("learner", "parameter_server")} if self.has_parameter_servers else {}),
            "replay": {"shards": self.num_shards},
            "sender": {"lookahead": self.lookahead, "compression": self.sender.compression},
            "rlx": {"reward_weights": self.rlx.reward_weights},
        }

    def source_of(self, key: str) -> str:
        """Return where a setting, or its nearest known parent, came from: "app.yaml line 12", "--set", or ""."""
        places = self._sources.places
        while key and key not in places:
            key = key.rpartition(".")[0]
        return places.get(key, "")

    def place_of(self, key: str) -> str:
        """Return where a setting came from as the end of a message: " (app.yaml line 12)", or ""."""
        source = self.source_of(key)
        return f" ({source})" if source else ""

    def refusal(self, key: str, message: str) -> ConfigError:
        """Make the error for a setting; its place ends the message."""
        return ConfigError(f"{message}{self.place_of(key)}", key=key, source=self.source_of(key))

    def with_sources(self, places: Mapping[str, str]) -> Config:
        """Return the same configuration, which remembers where its settings came from."""
        copy = self.model_copy()
        copy._sources = Sources(places)
        return copy
