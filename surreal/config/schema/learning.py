"""The `learner`, `parameter_server` and `checkpoint` sections."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from surreal.config.schema.fields import ClassSection, Section, Size


def _check_threads(value: object) -> object:
    """Refuse everything but a number of threads, with one message."""
    if value in (None, "all") or (type(value) is int and value >= 1):
        return value
    raise ValueError("it must be an integer >= 1, or all")


def _check_compile(value: object) -> object:
    """Refuse everything but the three choices, with one message."""
    if value == "auto" or isinstance(value, bool):
        return value
    raise ValueError("it must be auto, true or false")


class LearnerConfig(ClassSection):
    """The process that learns."""

    class_path: str = Field("surreal.learner.DQNLearner", alias="class", min_length=1)
    """Import path of the learner class, a subclass of `surreal.learner.Learner`."""

    batch_size: int = Field(64, ge=1, le=1_000_000)
    """Batch size of each rank: transitions, sequences or whole trajectories, depending on the replay. Raising it gives
    less noisy gradients, and fewer updates from the same samples."""

    gamma: float = Field(0.99, ge=0, le=1)
    """Discount factor per env step. Closer to 1 looks further ahead and learns more slowly."""

    n_step: int = Field(1, ge=1, le=1000)
    """Rewards summed before bootstrapping. Raising it propagates rewards faster, with more variance and off-policy
    bias."""

    max_updates: int | None = Field(None, ge=1)
    """Updates after which the learner ends the run. Unset: no limit."""

    compile: Annotated[bool | Literal["auto"], BeforeValidator(_check_compile)] = "auto"
    """Whether updates run as compiled graphs, which take a fraction of the time where networks are small. `auto`
    compiles alongside the run, where that saves more CPU time than it takes, and uses what earlier runs on this machine
    compiled; it never does in a deterministic run. `true` compiles before the first update. `false` never compiles."""

    ranks: int = Field(1, ge=1, le=1024)
    """Processes of the learner, on one machine, that learn together from a part of the shards each (`replay.shards`).
    Raising it computes larger batches in the same time, `ranks` times `batch_size`, if each has its own core or
    GPU."""

    threads: Annotated[int | Literal["all"] | None, BeforeValidator(_check_threads)] = None
    """Threads of the learner's process, or `all`: one per core, shared with its ranks. Raising it finishes large
    updates (convolutions) sooner if cores are idle meanwhile, as they are while agents wait for the end of a round;
    small networks get slower. Unset: the value of `OMP_NUM_THREADS`, which `surreal run` sets to 1."""

    gradients: Literal["learner", "agents"] = "learner"
    """Processes that compute gradients. `learner`: one process, from the experience of all agents. `agents`: each
    agent, from its own experience, which it keeps; parameter servers (`surreal ps`) replace the learner, and step the
    optimizer with these gradients."""

    combine_gradients: Literal["fifo", "avg", "dc"] = "fifo"
    """How a parameter server uses gradients. `fifo`: a step for each, in order of arrival. `avg`: a step with the mean
    of `num_gradients`, for whose parameters the agents wait. `dc`: a step for each, corrected for the updates since it
    was computed (delay compensation, arXiv:1609.08326)."""

    num_gradients: int = Field(4, ge=1, le=4096)
    """Number of gradients in a mean of `avg`, ideally one per agent; with more than that, agents wait without
    success."""

    dc_lambda: float = Field(0.05, ge=0)
    """Strength of the correction of `dc`. Raising it corrects stale gradients more; 0 is `fifo`."""

    dc_history: int = Field(20, ge=1, le=10_000)
    """Versions of the parameters that `dc` keeps for its correction. Raising it corrects older gradients, and needs the
    memory of one set of parameters each. A gradient of an older version is corrected with the oldest one kept."""

    gradients_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of gradients on the network. `bfloat16` needs half the bytes, and keeps three digits."""

    gradients_max_bytes: Size = 256 * 2**20
    """Largest size of all gradients that wait for a parameter server; above it, agents wait."""

    gradients_max_lag: int | None = Field(None, ge=0)
    """Largest age of a gradient in versions; an older one is refused, and counted. Lowering it keeps learning steady if
    agents are slow. Unset: no limit."""

    gradients_timeout_s: float = Field(30.0, gt=0)
    """Longest time in s that an agent waits for parameters that include its gradient. Then it continues without them,
    so that one dead agent does not stop all others."""


class ParameterServerConfig(Section):
    """The processes that take the learner's place with `learner.gradients: agents`."""

    servers: int = Field(1, ge=1, le=64)
    """Parameter servers that `surreal run` starts on this machine; several split the model's parameters."""


#: In `checkpoint.stores`: the run's folder.
RUN_STORE = "run"
_URL_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")


def refuse_password(value: str) -> str:
    """Refuse a URL with a password, which every copy of the configuration would show."""
    if _URL_PASSWORD.search(value):
        raise ValueError("a URL here holds no password; give it to the file system, in its environment or its files")
    return value


#: A folder, a file, or a URL.
Location = Annotated[str, Field(min_length=1), AfterValidator(refuse_password)]


class CheckpointConfig(Section):
    """Checkpoints of the learner: how many are kept, where, and which one a run starts from."""

    checkpoint_time_interval: float = Field(900.0, gt=0)
    """Seconds between checkpoints of the learner; a final one is written when the run ends."""

    interval_updates: int | None = Field(None, ge=1)
    """Updates between checkpoints, in addition to those by time. Unset: by time only."""

    stores: list[Location] = Field([RUN_STORE], min_length=1)
    """Destinations of checkpoints: `run` is the run's folder; any other is a folder or an fsspec URL such as
    `s3://bucket/surreal` (with the extra `s3`), in which each run has a folder with its run folder's name. Each
    destination has all checkpoints, and a run can be resumed from any of them. Credentials are those of the file
    system: for S3, AWS's environment variables and files."""

    upload_timeout_s: float = Field(20.0, ge=0, le=40)
    """How long the end of a run waits until the last checkpoint has arrived in all `stores`, in s."""

    checkpoints_to_keep: int = Field(3, ge=1)
    """How many of the newest checkpoints to keep."""

    best_checkpoints_to_keep: int = Field(1, ge=1)
    """How many of the best to keep: policies with the best evaluation rounds and, in addition to the newest ones, the
    learner's checkpoints with the best rounds near them."""

    restore: Location | None = None
    """Checkpoint to start from: path or URL of a learner's checkpoint or of a saved policy, or a run's folder, name or
    id, which gives its best policy, or else its newest checkpoint. `FOLDER/latest` or `FOLDER/best` is the newest or
    the best of a folder of checkpoints. With `--resume`, the name of an earlier checkpoint of the run goes back to it,
    and `best` to the best one. Unset, or `latest`: the run's newest, if it has any."""
