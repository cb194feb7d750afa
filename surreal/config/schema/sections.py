"""The sections of a configuration, one class each: every setting's meaning, unit, range and default, said once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from surreal.config.schema.fields import Address, ClassSection, Exploration, Section, Size, constant_exploration


class ModelConfig(ClassSection):
    """The network. Agents, learner and evaluation must name the same."""

    class_path: str = Field("surreal.model.QFunction", alias="class", min_length=1)
    """Import path of the model's class, a `surreal.model.Model`."""


class AgentConfig(ClassSection):
    """The processes that act."""

    class_path: str = Field("surreal.agent.QAgent", alias="class", min_length=1)
    """Import path of the agent's class, a `surreal.agent.Agent`."""

    count: int = Field(2, ge=0, le=4096)
    """Agents that `surreal run` starts on this machine; others may join from elsewhere at any time."""

    exploration: Annotated[Exploration, BeforeValidator(constant_exploration)] | None = None
    """Exploration rate: a number, or a schedule over the env steps of the whole run; unset leaves it to the agent."""

    show_ui: bool = False
    """Whether the first environment of each agent shows itself in a window; slows the agent to what eyes can follow."""

    def exploration_settings(self) -> dict[str, Any] | None:
        """Give the exploration as plain data, `{"type": "linear", "start": ...}`."""
        return None if self.exploration is None else self.exploration.model_dump(mode="json")


class LearnerConfig(ClassSection):
    """The process that learns."""

    class_path: str = Field("surreal.learner.DQNLearner", alias="class", min_length=1)
    """Import path of the learner's class, a `surreal.learner.Learner`."""

    batch_size: int = Field(64, ge=1, le=1_000_000)
    """Transitions of one update; more gives steadier gradients and fewer updates for the same number of samples."""

    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per env step; nearer to 1 looks further ahead, and learns more slowly."""

    n_step: int = Field(1, ge=1, le=1000)
    """Rewards summed before the bootstrap; more carries reward back faster, with more variance and off-policy bias."""

    max_updates: int | None = Field(None, ge=1)
    """Updates after which the learner ends the run; unset: no limit."""


class ReplayConfig(ClassSection):
    """The replay: what is kept, when learning may start, how much is learned from each step.

    A class that has no use for a setting refuses it.
    """

    class_path: str = Field("surreal.replay.UniformReplay", alias="class", min_length=1)
    """Import path of the replay's class, a `surreal.replay.Replay`."""

    capacity: int | None = Field(None, ge=1)
    """Transitions kept; the oldest leave. More is broader and staler. Unset: what the class says, 100000 of ours."""

    max_bytes: Size = 256 * 2**20
    """Bytes of experience kept in Redis, "256mb" may be written; the oldest leaves when it is reached."""

    max_age_s: float | None = Field(None, gt=0)
    """Seconds after which experience leaves although there is room, down to `start_size` transitions; less is fresher,
    and repeats it more. Unset: it stays for as long as there is room."""

    start_size: int | None = Field(None, ge=1)
    """Transitions that must be there before the first update; more starts later, from a broader replay. Unset: what the
    class says, 1000 of ours."""

    samples_per_insert: float | None = Field(None, gt=0)
    """How often a transition is sampled on average; agents and learner wait for each other to hold it. More learns more
    from each env step, at the cost of time and of overfitting. Unset: both run as fast as they can."""

    samples_per_insert_tolerance: float | None = Field(None, gt=0)
    """Samples that either side may be ahead. More means fewer waits and a looser ratio. Unset: enough for two chunks
    of each agent and two batches."""

    prefetch: int | None = Field(None, ge=1, le=1024)
    """Batches made ahead of the learner; more hides the network better, from a replay that much older. Unset: 2 to 8,
    as many as fit into 16 MiB."""

    observations: Literal["mirrored", "compressed", "remote", "auto"] | None = None
    """Where the learner has observations: `mirrored` downloads each once and keeps it, the fastest; `compressed` keeps
    each row compressed, images in a fraction of the memory, and unpacks those of a batch; `remote` leaves them in Redis
    and fetches those of a batch when it is drawn; `auto` mirrors what fits into `mirror_max_bytes`, else is remote.
    Unset: what the class says, `auto` of ours."""

    mirror_max_bytes: Size | None = None
    """Memory of the learner that `auto` takes for observations, "4gb" may be written; more mirrors larger replays.
    Unset: what the class says, 4gb of ours."""

    shards: int | None = Field(None, ge=1, le=1024)
    """Streams that the experience is spread over; agents share them out, a learner reads all. More uses more servers,
    or more masters of a Redis Cluster: a multiple of their number loads them evenly. Unset: one for each server of
    `redis.replay_address`."""

    follow: bool = False
    """Whether this learner only follows the experience of a run that another one owns: it evicts nothing and holds no
    agent back. It needs a `broadcast.policy` and a run folder of its own; `max_bytes` does not concern it."""

    pin_memory: bool | None = None
    """Whether batches are made in page-locked memory, from which a GPU copies while it computes; unset: if the learner
    is on a GPU."""


class SenderConfig(Section):
    """How an agent ships its experience."""

    chunk_steps: int = Field(64, ge=1, le=1_000_000)
    """Env steps of one chunk, all environments of the agent together; more costs less each, and arrives later."""

    chunk_max_bytes: Size = 2**20
    """Bytes of one chunk, "1mb" may be written; a chunk that would be larger leaves earlier."""

    max_delay_s: float = Field(1.0, gt=0)
    """Age in s at which a chunk leaves though it is not full."""

    lookahead: int | None = Field(None, ge=0, le=1000)
    """Further steps at the end of a segment, for n-step returns; unset: `learner.n_step - 1`. More serves learners with
    a larger n_step from the same stream."""

    on_full: Literal["wait", "drop"] = "wait"
    """What an agent does while the replay takes no more: wait, or drop the chunk and act on. Both are counted."""

    wait_timeout_s: float = Field(300.0, gt=0)
    """How long in s an agent waits for room before it gives up with an error."""

    compression: Literal["lz4", "zstd"] | None = None
    """How observations are compressed: `lz4` is fast, `zstd` smaller; costs agents and learner time. Not with remote
    observations. Unset: not at all."""


class BroadcastConfig(Section):
    """How the learner hands out its parameters."""

    interval_updates: int = Field(50, ge=1)
    """Updates between two broadcasts; fewer keeps agents nearer to the learner, and costs it time."""

    interval_s: float = Field(0.0, ge=0)
    """Least time in s between two broadcasts."""

    policy: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name the parameters are published under; learners of one run differ in it."""


class RedisConfig(Section):
    """Where Redis is, or how to start one."""

    address: Address | None = None
    """`host:port`, `redis://`, `rediss://`, `unix://`, or `redis+cluster://host:port,host:port` for a Redis Cluster;
    unset: `surreal run` starts its own server, which only this machine's user can reach."""

    replay_address: Address | list[Address] | None = None
    """Server of the experience alone, or a list of several that share it; unset: `address`."""

    parameter_address: Address | None = None
    """Server of the parameters alone; unset: `address`."""

    maxmemory: Size = 512 * 2**20
    """Memory of the server that `surreal run` starts, "512mb" may be written; the stream is kept below 85 % of it."""

    appendonly: bool = False
    """Whether that server keeps its data in the run's folder, so that it survives a restart; costs disk and time."""


class EvalConfig(Section):
    """The process that keeps score."""

    enabled: bool = True
    """Whether `surreal run` starts one."""

    episodes: int = Field(20, ge=1, le=100_000)
    """Episodes of one round; more gives a surer mean, later."""

    confirm_episodes: int = Field(100, ge=0, le=100_000)
    """Further episodes with the same parameters, played when a round reaches `run.stop_at_return`, before it ends the
    run; 0: the round is enough. More makes it less likely that a lucky round ends the run."""

    num_envs: int = Field(10, ge=1, le=4096)
    """Environments played at once."""

    interval_s: float = Field(5.0, ge=0)
    """Least time in s between the beginnings of two rounds; a round starts only for parameters not scored yet."""

    record_video_every: int = Field(0, ge=0)
    """Rounds from one recorded round to the next; 0: no video."""

    show_ui: bool = False
    """Whether the first environment shows itself in a window."""

    env_id: str | None = Field(None, min_length=1)
    """Environment to score on, with the spaces of `env.id`; unset: `env.id`."""

    env_kwargs: dict[str, Any] = {}
    """Keyword arguments added to `env.kwargs`, or put in their place."""


class CheckpointConfig(Section):
    """What is kept on disk, and where a run starts from."""

    checkpoint_time_interval: float = Field(900.0, gt=0)
    """Time in s between two checkpoints of the learner; the last one is written when the run ends."""

    interval_updates: int | None = Field(None, ge=1)
    """Updates between two checkpoints, in addition; unset: by time alone."""

    checkpoints_to_keep: int = Field(3, ge=1)
    """Newest checkpoints that stay."""

    best_checkpoints_to_keep: int = Field(1, ge=1)
    """Best policies of the evaluation that stay."""

    restore: str | None = Field(None, min_length=1)
    """Checkpoint to start from, a learner's or an evaluation's policy: a file's path or URL, or `latest` for the newest
    in the run's folder; unset: none."""


class RunConfig(Section):
    """When a run ends, and what it puts up with."""

    max_env_steps: int | None = Field(None, ge=1)
    """Env steps of all agents together; `max_global_step` is the same setting. Unset: no limit."""

    max_time_s: float | None = Field(None, gt=0)
    """Time in s since `surreal run` began; unset: no limit."""

    stop_at_return: float | None = None
    """Mean return of an evaluation round that ends the run; unset: none does."""

    restart_limit: int = Field(5, ge=0)
    """How often a process that was killed is started again, each."""

    @property
    def max_global_step(self) -> int | None:
        """The limit under its other name."""
        return self.max_env_steps
