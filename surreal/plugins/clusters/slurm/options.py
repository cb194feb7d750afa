"""The options of a job: `surreal slurm render`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from surreal.base.errors import ConfigError
from surreal.run.process.arguments import option

_WORD = (re.compile(r"[\w.,@%+=:/-]+"), "a word of letters, digits and .,@%+=:/-")
_SIZE = (re.compile(r"[1-9]\d*[KMGT]?"), "a number with K, M, G or T")
#: Pattern of each field's text, and its description.
_FORMS = {
    "partition": _WORD,
    "agent_partition": _WORD,
    "account": _WORD,
    "qos": _WORD,
    "time": (re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}"), "minutes, HH:MM:SS, D-HH or D-HH:MM:SS"),
    "memory": _SIZE,
    "agent_memory": _SIZE,
    "gpus": (re.compile(r"([A-Za-z][\w.-]*:)?[1-9]\d*"), "a number, or TYPE:NUMBER"),
    "local_disk": (re.compile(r"[/$][\w./${}:@+-]*"), "an absolute path, which may contain variables of the node"),
    "interface": (re.compile(r"[\w.:@-]{1,32}"), "the name of a network interface, such as ib0"),
}
_COUNTS = ("cpus", "agent_cpus", "agent_nodes", "warning_s")
#: Panels of the help.
_NODE, _QUEUE, _AGENTS = "The first node", "The queue", "The agents' nodes"


@dataclass(frozen=True)
class JobOptions:
    """Options of a job; None leaves a value to the cluster."""

    run: Annotated[
        str | None, option("NAME", "The run's id, which later jobs continue; default: one per job.", "--run")
    ] = None
    folder: Annotated[
        Path | None, option("DIR", "Folder of runs on a shared file system; default: runs, next to sbatch.")
    ] = None
    activate: Annotated[
        str | None, option("COMMAND", 'Puts `surreal` on the PATH of a node: "source venv/bin/activate".')
    ] = None
    partition: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    account: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    qos: Annotated[str | None, typer.Option(rich_help_panel=_QUEUE)] = None
    time: Annotated[str | None, option("LIMIT", "Time limit, such as 2-00:00:00.", rich_help_panel=_QUEUE)] = None
    warning_s: Annotated[
        int, option("S", "Seconds before the time limit to drain.", "--warning", rich_help_panel=_QUEUE)
    ] = 120
    is_requeued: Annotated[
        bool, option(None, "Requeue the job, which then continues.", "--requeue/--no-requeue", rich_help_panel=_QUEUE)
    ] = True
    sbatch: Annotated[
        list[str] | None, option("OPTION", "Any option of sbatch; may be repeated.", rich_help_panel=_QUEUE)
    ] = None
    cpus: Annotated[int, option(None, "CPUs for Redis, learner and evaluation.", rich_help_panel=_NODE)] = 4
    memory: Annotated[str | None, option("SIZE", "Memory; default: Redis' maximum + 4G.", rich_help_panel=_NODE)] = None
    gpus: Annotated[str | None, option("[TYPE:]N", "GPUs for the learner.", rich_help_panel=_NODE)] = None
    interface: Annotated[
        str | None, option("NAME", "Interface for Redis, such as ib0; default: all.", rich_help_panel=_NODE)
    ] = None
    keeps_experience: Annotated[
        bool,
        option(
            None,
            "Keep the experience in the run's folder, for a requeue.",
            "--appendonly/--no-appendonly",
            rich_help_panel=_NODE,
        ),
    ] = True
    local_disk: Annotated[
        str | None,
        option(
            "DIR",
            "Folder on the first node's disk for the experience while the job runs, such as '$TMPDIR'.",
            rich_help_panel=_NODE,
        ),
    ] = None
    agent_cpus: Annotated[int, option("N", "CPUs of each agent.", rich_help_panel=_AGENTS)] = 1
    agent_memory: Annotated[str, option("SIZE", "Memory for each CPU of an agent.", rich_help_panel=_AGENTS)] = "2G"
    agent_nodes: Annotated[
        int | None, option("N", "Number of nodes; default: Slurm's choice.", rich_help_panel=_AGENTS)
    ] = None
    has_array: Annotated[
        bool,
        option(
            None,
            "Agents as an array of jobs: each starts, fails and is preempted alone.",
            "--array",
            rich_help_panel=_AGENTS,
        ),
    ] = False
    agent_partition: Annotated[
        str | None, option(None, "Partition; default: --partition.", rich_help_panel=_AGENTS)
    ] = None

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
        if self.local_disk is not None and not self.keeps_experience:
            raise ConfigError(
                "--local-disk is for the experience on disk; leave it out with --no-appendonly", key="--local-disk"
            )
        for text in self.sbatch or ():
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
