"""The batch script of a run: the resources that it requests, the run's values, and `job.sh`, the same for all runs.

It is one heterogeneous job: Redis, the learner and the evaluation on one node, the agents as tasks on others. The
evaluation is next to the learner, because it decides when the goal is reached and must survive a failing agents' node.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from surreal.base.errors import ConfigError, EnvError
from surreal.config import Config, add_python_path, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.clusters.options import JobOptions
from surreal.run.process.roles import AGENT, ENVIRONMENT, EVAL, PARAMETER_SERVER, RLX_CLIENT, RLX_SERVER

#: Memory of the learner and the evaluation.
_LEARNER_MB = 4096
#: Stands for the number that a job will have.
_SOME_JOB = "1234567890"
_SECRET = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&]password=")


def render(
    source: str, overrides: Sequence[str], agents: int | None, options: JobOptions, *, is_tried: bool = False
) -> str:
    """Write the script; `agents` and the overrides change the configuration.

    If it is tried, classes and environment are made now, to find their errors.

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
            check_run(config, is_here=False)
        except EnvError as error:
            raise ConfigError(f"{error}; with --no-check, only the job makes it", key="env.id") from error
    run = options.run or f"{config.name}-$SLURM_JOB_ID"
    try:
        RedisClient(run=run.replace("$SLURM_JOB_ID", _SOME_JOB))
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    head, body = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("head.sh", "job.sh"))
    return f"{Template(head).substitute(_values(config, source, overrides, run, options))}\n{body}"


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
    message = f"{key}{config.place_of(key)} {problem}; use `surreal run` in a job of one node"
    return ConfigError(message, key=key, source=config.source_of(key))


def _resources(config: Config, options: JobOptions) -> str:
    """Write the lines for Slurm: for the whole job, the first node, and the agents."""

    def requests(values: dict[str, str | None]) -> list[str]:
        return [f"#SBATCH --{name}={value}" for name, value in values.items() if value is not None]

    whole = {
        "job-name": config.name,
        "output": "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{options.warning_s}",
        "account": options.account,
        "qos": options.qos,
        "time": options.time,
    }
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
    more = [f"#SBATCH {flag}" for flag in options.sbatch or ()]
    lines = [
        *requests(whole),
        f"#SBATCH {'--requeue' if options.is_requeued else '--no-requeue'}",
        *more,
        "# The first part: Redis, the learner and the evaluation.",
        *requests(first),
    ]
    if not options.has_array:
        lines += ["#SBATCH hetjob", "# The second part: a task for each agent.", *requests(agents), *more]
    return "\n".join(lines)


def _values(
    config: Config, source: str, overrides: Sequence[str], run: str, options: JobOptions
) -> dict[str, str | int]:
    path, redis = Path(source), list[str]()
    is_file = path.suffix in (".yaml", ".yml") or path.is_file()
    if config.redis.address is None:
        redis = ["--maxmemory", str(config.own_redis_bytes)]
        redis += ["--appendonly"] if options.keeps_experience else []
        redis += ["--interface", options.interface] if options.interface else []
    elif options.local_disk:
        raise ConfigError(
            "--local-disk is for the job's own Redis, but redis.address names another", key="--local-disk"
        )
    partition = options.agent_partition or options.partition
    activation = ":  # it is on the PATH of the shell that submitted the job"
    if options.activate is not None:  # such scripts use variables that are not set
        activation = f"set +u\n    {options.activate}\n    set -u"
    return {
        "name": config.name,
        "many": f"{config.agent.count} agents" if config.agent.count > 1 else "1 agent",
        "resources": _resources(config, options),
        "run": run if options.run is None else shlex.quote(run),
        "root": shlex.quote(str(options.folder.absolute())) if options.folder else '"$SLURM_SUBMIT_DIR/runs"',
        "config": shlex.quote(str(path.absolute()) if is_file else source),
        "settings": shlex.join(word for override in overrides for word in ("--set", override)),
        "agents": AGENT.count(config),
        "has_array": int(options.has_array),
        "queue": f"--partition={partition}" if partition else "",
        "agent_cpus": options.agent_cpus,
        "agent_memory": options.agent_memory,
        "parameter_servers": PARAMETER_SERVER.count(config),
        "has_evaluation": EVAL.count(config),
        "restart_limit": config.run.restart_limit,
        "is_requeued": int(options.is_requeued),
        "redis_options": shlex.join(redis) + (f' --local-disk "{options.local_disk}"' if options.local_disk else ""),
        "activation": activation,
    }
