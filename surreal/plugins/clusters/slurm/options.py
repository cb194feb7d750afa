"""Options of a job: resources, queue, folders. They are checked before they are written into a script."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError

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
