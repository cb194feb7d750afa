"""What a job may be asked for next to its run: resources, queue, place. Checked before a word gets into a script."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from surreal.base.errors import ConfigError

_WORD = (re.compile(r"[\w.,@%+=:/-]+"), "a word of letters, digits and .,@%+=:/-")
#: Of `field`: what its text must be, and how that is said.
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
    """What a job is asked for; None leaves it to the cluster.

    Args:
        run: id of the run, which a further job of the same script continues with; None: one for each job.
        folder: on the shared file system, for the folders of runs; None: `runs` where `sbatch` is called.
        partition, account, qos, time: as `sbatch` takes them, for the whole job.
        agent_partition: partition of the agents' nodes, if it is another.
        cpus: CPUs of the first node: Redis, the learner and the evaluation.
        memory: memory of the first node; None: what Redis may take, and 4 GiB.
        gpus: GPUs of the first node.
        agent_cpus: CPUs of each agent.
        agent_memory: memory of each agent's CPU.
        agent_nodes: how many nodes the agents are spread over; None: as few as there is room on.
        has_array: whether agents are an array of jobs, which the first one hands in, and not a part of it.
        activate: a command that makes `surreal` known on a node.
        interface: network interface of the first node on which Redis listens; None: all of them.
        warning_s: how long before the time limit the job is to drain, s.
        is_requeued: whether the job may be put into the queue again.
        keeps_experience: whether Redis has an append-only file in the run's folder.
        sbatch: further options of `sbatch`, for all nodes.

    Raises:
        ConfigError: one of them is out of range, or cannot be written into a script.
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
        """`memory` in MB, in which Slurm counts where no unit is given."""
        if self.memory is None:
            return None
        unit = self.memory[-1] if self.memory[-1] in "KMGT" else "M"
        return math.ceil(int(self.memory.rstrip("KMGT")) * 1024.0 ** ("KMGT".index(unit) - 1))


def _option(field: str) -> str:
    """The name of a field on the command line."""
    return {"warning_s": "--warning"}.get(field, f"--{field.replace('_', '-')}")
