"""Sections of a configuration, one class each, with the meaning, unit, range and default of every setting.

The others are next to it: `environment.py` (env, self_play), `learning.py` (learner, parameter_server, checkpoint) and
`rlx.py`. `root.py` puts them together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from surreal.config.schema.fields import Address, ClassSection, Device, Exploration, Section, Size, short_exploration


class ModelConfig(ClassSection):
    """The network. Agents, learner and evaluation must use the same one."""

    class_path: str = Field("surreal.model.QFunction", alias="class", min_length=1)
    """Import path of the model class, a subclass of `surreal.model.Model`, or of the bare
    `surreal.base.pytorch.Module`."""


class AgentConfig(ClassSection):
    """The processes that act in environments."""

    class_path: str = Field("surreal.agent.QAgent", alias="class", min_length=1)
    """Import path of the agent class, a subclass of `surreal.agent.Agent`."""

    count: int = Field(2, ge=0, le=4096)
    """Agent processes that `surreal run` starts on this machine. More can join from other machines at any time."""

    per_process: int = Field(1, ge=1, le=1024)
    """Agents in each of these processes, each on its own thread, with its own `env.num_envs` environments and
    gradients. Raising it saves memory on machines with few cores. Only with `learner.gradients: agents`."""

    exploration: Annotated[Exploration, BeforeValidator(short_exploration)] | None = None
    """Exploration rate (of `DeterministicAgent`: standard deviation of its noise): a number, points
    `[[env step, rate], ...]`, a schedule over the env steps of the whole run, or `{class: my_module.MySchedule, args}`,
    a subclass of `surreal.base.schedules.Schedule`. Unset: the agent's own; a `QAgent`
    goes from 1 to 0.05 over 10,000 env steps, a `DeterministicAgent` has 0.1, and a `NoisyQAgent` none. 0 never
    explores."""

    round_steps: int | None = Field(None, ge=1)
    """Steps of a trajectory, which is `trajectory_steps` of the replay. When the agent has sent one for each
    environment, it waits for parameters that learned from them. On-policy algorithms then need fewer env steps. It
    needs a `learner.batch_size` of one trajectory for each environment of all agents. An RLX server waits after each of
    its batches, with `rlx.on_full: wait`. Unset: agents never wait."""

    round_timeout_s: float = Field(30.0, gt=0)
    """How long in s an agent waits at the end of a round before it continues without newer parameters."""

    device: Device = "cpu"
    """Where agents and RLX servers compute actions, as in `device`. A GPU pays off for large networks and many
    environments in one process (`env.num_envs`); each process needs a part of its memory. Evaluation is on the CPU."""

    show_ui: bool = False
    """Whether to show each agent's first environment in a window; this slows the agent to a watchable speed."""

    def exploration_settings(self) -> dict[str, Any] | None:
        """Return the exploration as plain data, `{"type": "linear", "start": ...}`."""
        return None if self.exploration is None else self.exploration.model_dump(mode="json", by_alias=True)


class ReplayConfig(ClassSection):
    """The replay: what it keeps, when learning starts, and how often each transition is used.

    A class refuses the settings that it has no use for.
    """

    class_path: str = Field("surreal.replay.UniformReplay", alias="class", min_length=1)
    """Import path of the replay class, a subclass of `surreal.replay.Replay`."""

    capacity: int | None = Field(None, ge=1)
    """Transitions kept; the oldest are evicted. Raising it makes samples more diverse and older. Unset: the default of
    the class, 100000 for the built-in ones."""

    max_bytes: Size = 256 * 2**20
    """Bytes of experience kept in Redis; the oldest is evicted at the limit."""

    max_age_s: float | None = Field(None, gt=0)
    """Age in s at which experience is evicted even if there is room, as long as `start_size` transitions remain.
    Lowering it keeps the replay fresh, and repeats existing transitions more often. Unset: no limit."""

    start_size: int | None = Field(None, ge=1)
    """Transitions needed before the first update. Raising it starts learning later, from more diverse experience.
    Unset: the default of the class, 1000 for the built-in ones."""

    samples_per_insert: float | None = Field(None, gt=0)
    """How often each transition is sampled, on average; agents and learner wait for each other to hold this ratio.
    Raising it learns more from each env step, but takes longer and may overfit. Unset: both run at full speed."""

    samples_per_insert_tolerance: float | None = Field(None, gt=0)
    """Samples by which either side may be ahead. Raising it means fewer waits and a looser ratio. Unset: enough for two
    chunks of each agent and for two batches."""

    prefetch: int | None = Field(None, ge=1, le=1024)
    """Batches prepared ahead of the learner. Raising it hides more network latency, with slightly older samples. Unset:
    2 to 16, as many as fit into 16 MiB."""

    observations: Literal["mirrored", "compressed", "remote", "auto"] | None = None
    """Where the learner keeps observations. `mirrored`: downloaded once and kept in memory; the fastest. `compressed`:
    kept compressed and unpacked when sampled; images take a fraction of the memory. `remote`: left in Redis and fetched
    when sampled. `auto`: mirrored if they fit into `mirror_max_bytes`, else remote. Unset: the default of the class,
    `auto` for the built-in ones."""

    mirror_max_bytes: Size | None = None
    """Learner memory that `auto` may use for observations. Raising it lets larger replays be mirrored. Unset: the
    default of the class, 4gb for the built-in ones."""

    shards: int | None = Field(None, ge=1, le=1024)
    """Streams that experience is spread over; each agent writes to one, a learner reads all. A multiple of the number
    of servers, or of masters in a Redis Cluster, loads them evenly. Unset: one per server in `redis.replay_address`."""

    follow: bool = False
    """Whether this learner only follows the stream of a run that another learner owns: it evicts nothing and never
    holds agents back. It needs its own `broadcast.policy` and run folder; `max_bytes` bounds what it uses of the
    stream."""

    pin_memory: bool | None = None
    """Whether to build batches in page-locked memory, which a GPU can copy from while it computes. Unset: only if the
    learner runs on a GPU."""


class SenderConfig(Section):
    """Sending experience from agents."""

    chunk_steps: int = Field(64, ge=1, le=1_000_000)
    """Env steps per chunk, over all environments of the agent. Raising it costs less per step, and steps arrive
    later. With `env.frame_stack`, chunks wait for as many steps as it takes to send each frame at most 1.3 times."""

    chunk_max_bytes: Size = 2**20
    """Largest chunk. Steps that would exceed it are sent early, or in several chunks if most of one would be repeated
    frames."""

    max_delay_s: float = Field(1.0, gt=0)
    """Age in s at which a chunk is sent even if it is not full."""

    lookahead: int | None = Field(None, ge=0, le=1000)
    """Steps repeated at the end of each segment for n-step returns. Raising it lets learners with a larger `n_step` use
    the same stream. Unset: `learner.n_step - 1`."""

    on_full: Literal["wait", "drop"] = "wait"
    """What an agent does while the replay accepts no experience: wait, or drop the chunk and keep acting. Both are
    counted."""

    wait_timeout_s: float = Field(300.0, gt=0)
    """How long in s an agent waits for space before it fails with an error."""

    compression: Literal["lz4", "zstd"] | None = None
    """Compression of observations: `lz4` is fast, `zstd` is smaller; both cost agents and learner time. Excludes
    `replay.observations: remote`. Unset: none."""


class BroadcastConfig(Section):
    """Publishing parameters from the learner."""

    interval_updates: int = Field(50, ge=1)
    """Updates between broadcasts. Lowering it reduces policy lag and takes more of the learner's time. A parameter
    server publishes after each update."""

    interval_s: float = Field(0.0, ge=0)
    """Least time in s between broadcasts."""

    policy: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name under which the parameters are published; learners of one run must use different names."""


class RedisConfig(Section):
    """Addresses of Redis, and settings of a server that the run starts."""

    address: Address | None = None
    """`host:port`, `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port,host:port` for a Redis Cluster, or
    `redis+sentinel://host:port,host:port/SERVICE` for the primary that Sentinels know. Unset: `surreal run` starts its
    own server, which only the current user can reach."""

    replay_address: Address | list[Address] | None = None
    """Server for experience only, or a list of servers to spread it over. Unset: `address`."""

    parameter_address: Address | None = None
    """Server for parameters only. Unset: `address`."""

    maxmemory: Size | None = None
    """Memory limit of the server that `surreal run` starts; the stream is kept below 85 % of it. Unset: 512mb, or as
    much more as `replay.max_bytes` needs."""

    appendonly: bool = False
    """Whether that server persists its data in the run folder, so that it survives a restart; costs disk and time."""


class EvalConfig(Section):
    """The process that evaluates the policy."""

    enabled: bool = True
    """Whether `surreal run` starts an evaluation process."""

    episodes: int = Field(20, ge=1, le=100_000)
    """Episodes per round. Raising it gives a more reliable mean, but later."""

    confirm_episodes: int = Field(100, ge=0, le=100_000)
    """Further episodes with the same parameters after a round has reached `run.stop_at_return`. The run ends only if
    these episodes alone confirm it, one-sided at 95 %: their mean minus 1.645 standard errors must reach the goal.
    Raising it confirms smaller margins, and takes longer. 0: none."""

    sample: bool = False
    """Whether evaluation samples actions from the policy's distribution, as training does, instead of taking the most
    probable one. `best`, `--verify`, `surreal play` and `surreal watch` do the same. Set it to compare with a result
    that was measured in this way. Needs `PolicyAgent`, `SamplingAgent`, or your agent with a `sampler`."""

    num_envs: int = Field(10, ge=1, le=4096)
    """Environments stepped at once."""

    max_episode_steps: int | None = Field(None, ge=1)
    """Env steps after which an episode is cut; it counts, and its score is marked as cut. Unset: no bound for an
    environment with its own time limit, 27000 for others."""

    interval_s: float = Field(5.0, ge=0)
    """Least time in s from the start of one round to the next; a round starts only for parameters not yet evaluated."""

    record_video_every: int = Field(0, ge=0)
    """Record a video of every n-th round; 0: never."""

    show_ui: bool = False
    """Whether to show the first environment in a window."""

    env_id: str | None = Field(None, min_length=1)
    """Environment to evaluate on, with the spaces of `env.id`. Unset: `env.id`."""

    env_kwargs: dict[str, Any] = {}
    """Keyword arguments that extend or replace those in `env.kwargs`."""


class RunConfig(Section):
    """When a run ends, and what failures it tolerates."""

    max_env_steps: int | None = Field(None, ge=1)
    """Env steps, over all agents, after which the run ends; `max_global_step` is another name for it. Unset: no
    limit."""

    max_time_s: float | None = Field(None, gt=0)
    """Seconds after the start of `surreal run` at which the run ends. Unset: no limit."""

    stop_at_return: float | None = None
    """Mean return of an evaluation round that ends the run. Unset: no such goal."""

    deterministic: bool = False
    """Whether one process acts, learns and evaluates in a fixed order (`surreal run --deterministic`): the same seed
    gives the same parameters, bit for bit, and a run that was interrupted ends like one that was not."""

    restart_limit: int = Field(5, ge=0)
    """How often each process may be killed within 60 s. The first restart is immediate, the next ones wait 0.25 s to
    10 s."""

    hang_timeout_s: float = Field(60.0, gt=0)
    """Time in s without progress after which a loop (an environment's step, an update, a thread) counts as hanging.
    Waiting for Redis, for credit or for experience does not count. Raise it if the first update compiles for a long
    time."""

    on_hang: Literal["warn", "restart", "end"] = "warn"
    """Reaction to a process that hangs. `warn` names the process and the call it hangs in, in the log and in `surreal
    status`. `restart` also ends the process, which `surreal run` then starts again. `end` ends the run with the reason.
    While a process starts or drains, it only warns."""

    @property
    def max_global_step(self) -> int | None:
        return self.max_env_steps
