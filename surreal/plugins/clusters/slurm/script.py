"""The batch script of a run: the resources that it requests, the run's values, and `job.sh`, the same for all runs.

It is one heterogeneous job: Redis, the learner and the evaluation on one node, the agents as tasks on others. The
evaluation is next to the learner, because it decides when the goal is reached and must survive a failing agents' node.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from surreal.base.errors import ConfigError, EnvError
from surreal.config import Config, add_python_path, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.run.process.roles import AGENT, ENVIRONMENT, EVAL, PARAMETER_SERVER, RLX_CLIENT, RLX_SERVER

#: Memory of the learner and the evaluation.
_LEARNER_MB = 4096
#: Stands for the number that a job will have.
_SOME_JOB = "1234567890"
_SECRET = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&]password=")
_BODY = "job.sh"
_WORD = (re.compile(r"[\w.,@%+=:/-]+"), "a word of letters, digits and .,@%+=:/-")
#: Pattern of each field's text, and its description.
_FORMS = {
    "partition": _WORD,
    "agent_partition": _WORD,
    "account": _WORD,
    "qos": _WORD,
    "time": (re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}"), "minutes, HH:MM:SS, D-HH or D-HH:MM:SS"),
    "memory": (re.compile(r"[1-9]\d*[KMGT]?"), "a number with K, M, G or T"),
    "agent_memory": (re.compile(r"[1-9]\d*[KMGT]?"), "a number with K, M, G or T"),
    "gpus": (re.compile(r"([A-Za-z][\w.-]*:)?[1-9]\d*"), "a number, or TYPE:NUMBER"),
    "interface": (re.compile(r"[\w.:@-]{1,32}"), "the name of a network interface, such as ib0"),
}
_COUNTS = ("cpus", "agent_cpus", "agent_nodes", "warning_s")


@dataclass(frozen=True)
class JobOptions:
    """Options of a job; None leaves a value to the cluster.

    Args:
        run: id of the run, which another job of the same script continues; None: one for each job.
        folder: folder of runs on the shared file system; None: `runs` in the folder where `sbatch` is called.
        partition, account, qos, time: options of `sbatch` for the whole job.
        agent_partition: partition of the agents' nodes, if it differs.
        cpus: CPUs of the first node, for Redis, the learner and the evaluation.
        memory: memory of the first node; None: the maximum of Redis, and 4 GiB.
        gpus: GPUs of the first node.
        agent_cpus: CPUs of each agent.
        agent_memory: memory of each agent's CPU.
        agent_nodes: number of nodes for the agents; None: as few as have room for them.
        has_array: whether agents are an array of jobs, which the first job submits, instead of a part of it.
        activate: a command that puts `surreal` on the PATH of a node.
        interface: network interface of the first node on which Redis listens; None: all of them.
        warning_s: time before the time limit at which the job drains, s.
        is_requeued: whether the job may be requeued.
        keeps_experience: whether Redis has an append-only file in the run's folder.
        sbatch: further options of `sbatch`, for all nodes.

    Raises:
        ConfigError: a value is out of range, or cannot be written into a script.
    """

    run: str | None = None
    folder: Path | None = None
    partition: str | None = None
    agent_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    cpus: int = 4
    memory: str | None = None
    gpus: str | None = None
    agent_cpus: int = 1
    agent_memory: str = "2G"
    agent_nodes: int | None = None
    has_array: bool = False
    activate: str | None = None
    interface: str | None = None
    warning_s: int = 120
    is_requeued: bool = True
    keeps_experience: bool = True
    sbatch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, (form, meaning) in _FORMS.items():
            value = getattr(self, field)
            if value is not None and not form.fullmatch(value):
                raise ConfigError(f"{_option(field)} is {value!r}; it must be {meaning}", key=_option(field))
        for field in _COUNTS:
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ConfigError(f"{_option(field)} is {value}; it must be >= 1", key=_option(field))
        if self.has_array and self.agent_nodes is not None:
            raise ConfigError(
                "--agent-nodes is for agents that start together; leave it out with --array", key="--array"
            )
        for text in self.sbatch:
            if not re.fullmatch(r"--?[A-Za-z][^\n\r]*", text):
                problem = "it must be an option of sbatch on one line, such as --constraint=skylake"
                raise ConfigError(f"--sbatch is {text!r}; {problem}", key="--sbatch")
        if self.activate is not None and not self.activate.strip():
            raise ConfigError("--activate is empty; give a command, or leave it out", key="--activate")
        if self.folder is not None and re.search(r"[\n\r]", str(self.folder)):
            raise ConfigError(f"--folder is {str(self.folder)!r}; it must be on one line", key="--folder")

    @property
    def memory_mb(self) -> int | None:
        """`memory` in MB, which is Slurm's default unit."""
        if self.memory is None:
            return None
        unit = self.memory[-1] if self.memory[-1] in "KMGT" else "M"
        return math.ceil(int(self.memory.rstrip("KMGT")) * 1024.0 ** ("KMGT".index(unit) - 1))


def _option(field: str) -> str:
    """Return the command line's name of a field."""
    return {"warning_s": "--warning"}.get(field, f"--{field.replace('_', '-')}")


def render(
    source: str, overrides: Sequence[str], agents: int | None, options: JobOptions, *, is_tried: bool = False
) -> str:
    """Write the script.

    Args:
        source: preset or file of the configuration.
        overrides: overrides of the configuration.
        agents: number of agents, >= 1; None: as in the configuration.
        options: options of the job.
        is_tried: whether to make classes and environment now, to find their errors.

    Raises:
        ConfigError: the configuration is wrong, or Slurm cannot run it.
    """
    if agents is not None:
        if agents < 1:
            raise ConfigError(f"--agents is {agents}; it must be >= 1", key="--agents")
        overrides = (*overrides, f"agent.count={agents}")
    for override in overrides:
        if _SECRET.search(override):
            key = override.partition("=")[0]
            raise ConfigError(
                f"--set {key} has a password, which the script would show; write it into the file", key=key
            )
    config = load_config(source, overrides)
    _check(config)
    if is_tried:
        from surreal.run.lockstep.check import check_run  # imports torch

        add_python_path(config.python_path)
        try:
            check_run(config)
        except EnvError as error:
            raise ConfigError(f"{error}; with --no-check, only the job makes it", key="env.id") from error
    run = options.run or f"{config.name}-$SLURM_JOB_ID"
    try:
        RedisClient(run=run.replace("$SLURM_JOB_ID", _SOME_JOB))
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    sections = (
        _title(config),
        _resources(config, options),
        _values(config, source, overrides, run, options),
        files(__package__).joinpath(_BODY).read_text(encoding="utf-8"),
    )
    return "\n".join(sections)


def _check(config: Config) -> None:
    if config.run.deterministic:
        raise _refused(config, "run.deterministic", "is true: such a run is one process, on one node")
    for role, key in ((RLX_SERVER, "rlx.servers"), (RLX_CLIENT, "rlx.clients"), (ENVIRONMENT, "environment.run")):
        if role.count(config):
            raise _refused(config, key, f"asks for {role.name} processes, which the job would not start")
    if not AGENT.count(config):
        raise _refused(config, "agent.count", "is 0; the job would have nothing to learn from")
    if config.replay.follow:
        raise _refused(config, "replay.follow", "is true, but a run needs a learner that owns its replay")


def _refused(config: Config, key: str, problem: str) -> ConfigError:
    place = config.source_of(key)
    where = f" ({place})" if place else ""
    advice = "use `surreal run` in a job of one node"
    return ConfigError(f"{key}{where} {problem}; {advice}", key=key, source=place)


def _title(config: Config) -> str:
    many = f"{config.agent.count} agents" if config.agent.count > 1 else "1 agent"
    return f"""#!/bin/bash
# {config.name} with {many}: Redis, the learner and the evaluation on one node, agents on others.
#
#   sbatch FILE      starts it; `scancel JOB` ends it, and the learner writes a checkpoint
#
# Written by `surreal slurm render`; docs/slurm.md describes time limits, preemptions and failing nodes.
"""


def _resources(config: Config, options: JobOptions) -> str:
    """Write the lines for Slurm: for the whole job, the first node, and the agents."""
    whole = {
        "job-name": config.name,
        "output": "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{options.warning_s}",
        "account": options.account,
        "qos": options.qos,
        "time": options.time,
    }
    flags = ("--requeue" if options.is_requeued else "--no-requeue", *options.sbatch)
    needed_mb = _LEARNER_MB + (0 if config.redis.address is not None else config.own_redis_bytes >> 20)
    first = {
        "partition": options.partition,
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(options.cpus),
        # Slurm would also apply --mem of the first part to the second, where it contradicts --mem-per-cpu.
        "mem-per-cpu": f"{-(-(options.memory_mb or needed_mb) // options.cpus)}M",
        "gres": None if options.gpus is None else f"gpu:{options.gpus}",
    }
    agents = {
        "nodes": None if options.agent_nodes is None else str(options.agent_nodes),
        "ntasks": str(AGENT.count(config)),
        "partition": options.agent_partition or options.partition,
        "cpus-per-task": str(options.agent_cpus),
        "mem-per-cpu": options.agent_memory,
    }
    second = [
        "#SBATCH hetjob",
        "# The second part: a task for each agent.",
        *_requests(agents),
        *(f"#SBATCH {flag}" for flag in options.sbatch),
    ]
    lines = [
        *_requests(whole),
        *(f"#SBATCH {flag}" for flag in flags),
        "# The first part: Redis, the learner and the evaluation.",
        *_requests(first),
        *(() if options.has_array else second),
    ]
    return "\n".join(lines) + "\n"


def _requests(values: dict[str, str | None]) -> list[str]:
    return [f"#SBATCH --{name}={value}" for name, value in values.items() if value is not None]


def _values(config: Config, source: str, overrides: Iterable[str], run: str, options: JobOptions) -> str:
    """Write the variables that `job.sh` reads."""
    path = Path(source)
    is_file = path.suffix in (".yaml", ".yml") or path.is_file()
    settings = [word for override in overrides for word in ("--set", override)]
    redis = []
    if config.redis.address is None:
        redis = ["--maxmemory", str(config.own_redis_bytes)]
        redis += ["--appendonly"] if options.keeps_experience else []
        redis += ["--interface", options.interface] if options.interface else []
    root = shlex.quote(str(options.folder.absolute())) if options.folder else '"$SLURM_SUBMIT_DIR/runs"'
    partition = options.agent_partition or options.partition
    queue = f"--partition={partition}" if partition else ""
    return f"""\
# The run's id, which a requeued job keeps. The folder of runs, on the shared file system. The configuration, and the
# settings that override it.
run={run if options.run is None else shlex.quote(run)}
root={root}
config={shlex.quote(str(path.absolute()) if is_file else source)}
settings=({shlex.join(settings)})
# The agents: an array of jobs, or tasks of this one. The options of each job of an array, and of each task.
agents={AGENT.count(config)} has_array={int(options.has_array)}
agent_job=({queue})
agent_task=(--cpus-per-task={options.agent_cpus} --mem-per-cpu={options.agent_memory})
# Processes next to the learner or in its place, and the limit of restarts.
parameter_servers={PARAMETER_SERVER.count(config)} has_evaluation={EVAL.count(config)}
restart_limit={config.run.restart_limit} is_requeued={int(options.is_requeued)}
# Options of the run's Redis; none if the configuration names a server.
redis_options=({shlex.join(redis)})

# Puts `surreal` on the PATH of a node.
activate() {{
    {_activation(options.activate)}
}}
"""


def _activation(command: str | None) -> str:
    if command is None:
        return ":  # it is on the PATH of the shell that submitted the job"
    return f"set +u\n    {command}\n    set -u"  # such scripts use variables that are not set
